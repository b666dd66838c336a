#include <fmt/format.h>

#include <filesystem>

#include "trireme/config/problems.h"
#include "trireme/config/value.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace fs = std::filesystem;

namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The part of the path that is there: the path itself, or one of its folders.
fs::path what_is_there(const fs::path& path) {
  fs::path there = fs::absolute(path).lexically_normal();
  while (!is_there(there) && there.has_relative_path()) there = there.parent_path();
  return there;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto inside = fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(folder).lexically_normal());
  return !inside.empty() && *inside.begin() != "..";
}

}  // namespace

void validate_places(const Settings& s) {
  config::Problems problems;
  if (const fs::path there = what_is_there(s.out_dir); !is_folder(there))
    problems.add(fmt::format("out_dir {} cannot be a folder: {} is a file", s.out_dir, there.string()), {},
                 "name a folder, for instance --out_dir out/mine; it is made where it is missing");
  Settings copy = s;
  declare(copy).for_each([&](const config::Section&, const config::Setting& setting) {
    if (!setting.rules.writes_file || is_absent(setting)) return;
    const fs::path file = value_text(setting), folder = fs::absolute(file).parent_path();
    if (is_folder(file))
      problems.add(fmt::format("{} {} is a folder", setting.key, file.string()), {}, "name a file in it");
    else if (!is_folder(folder) && !is_inside(folder, s.out_dir))
      problems.add(
          fmt::format("{} {} cannot be written: there is no folder {}", setting.key, file.string(), folder.string()),
          {}, "make the folder first, or name a file in another one");
  });
  if (s.offload.uses(schedule::Tier::disk))
    problems.add_if(schedule::check_offload_folder(s.offload.path.value_or(what_is_there(s.out_dir).string())));
  problems.throw_if_any();
}

}  // namespace trireme
