// Descriptors 0, 1 and 2 of a process that was started without some of them (`>&-`, a daemon). The next file or pipe
// that is opened would get such a number, and what is printed would go there: a run's log lines into its metrics.jsonl.
#pragma once

namespace trireme::launch {

/// Opens /dev/null in place of those that are closed.
void fill_standard_descriptors();

}  // namespace trireme::launch
