#include "trireme/doctor/settings.h"

namespace trireme::doctor {

config::Section section(DoctorSettings& s) {
  return {.name = "doctor",
          .title = "looking at machines before a run",
          .command = "doctor",
          .rows = {
              {"doctor.json",
               &s.json,
               "file for what trireme doctor found as JSON (keys: docs/launching.md)",
               {.absent = "none", .example = "result.json", .writes_file = true, .result_begins = "{"}},
          }};
}

}  // namespace trireme::doctor
