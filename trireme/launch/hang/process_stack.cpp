// stack_of with libdw of elfutils, which attaches to the process and walks its frames.
#include <cxxabi.h>
#include <elfutils/libdwfl.h>

#include <cstdlib>
#include <memory>

#include "trireme/launch/hang/process_look.h"

namespace trireme::launch {
namespace {
// The files themselves have the names of functions, so no separate debug files are searched.
int no_debug_file(Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
  return -1;
}

std::string readable(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 ? name.get() : mangled;
  // Cuts the function's arguments; template arguments stay.
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>') --depth;
    const bool is_namespace = text.compare(i, 21, "(anonymous namespace)") == 0;
    if (is_namespace) i += 20;
    if (!is_namespace && text[i] == '(' && depth == 0 && i > 0) return text.substr(0, i);
  }
  return text;
}

struct Walk {
  Dwfl* dwfl;
  std::size_t most;
  std::vector<std::string> names;
};

int add_frame(Dwfl_Frame* frame, void* argument) {
  auto& walk = *static_cast<Walk*>(argument);
  Dwarf_Addr pc = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &pc, &is_activation)) return DWARF_CB_ABORT;
  // A return address may be the first byte of the next function.
  if (!is_activation) --pc;
  Dwfl_Module* module = dwfl_addrmodule(walk.dwfl, pc);
  const char* name = module == nullptr ? nullptr : dwfl_module_addrname(module, pc);
  walk.names.push_back(name == nullptr ? "?" : readable(name));
  return walk.names.size() < walk.most ? DWARF_CB_OK : DWARF_CB_ABORT;
}
}  // namespace

std::vector<std::string> stack_of(std::int64_t pid, std::size_t most) {
  if (waits_in_kernel(pid)) return {};  // libdw would wait until the thread stops
  static const Dwfl_Callbacks callbacks{.find_elf = dwfl_linux_proc_find_elf,
                                        .find_debuginfo = no_debug_file,
                                        .section_address = dwfl_offline_section_address,
                                        .debuginfo_path = nullptr};
  const std::unique_ptr<Dwfl, void (*)(Dwfl*)> dwfl(dwfl_begin(&callbacks), dwfl_end);
  if (!dwfl || dwfl_linux_proc_report(dwfl.get(), static_cast<pid_t>(pid)) != 0 ||
      dwfl_report_end(dwfl.get(), nullptr, nullptr) != 0 ||
      dwfl_linux_proc_attach(dwfl.get(), static_cast<pid_t>(pid), false) != 0)
    return {};
  Walk walk{dwfl.get(), most, {}};
  dwfl_getthread_frames(dwfl.get(), static_cast<pid_t>(pid), add_frame, &walk);
  return walk.names;
}

}  // namespace trireme::launch
