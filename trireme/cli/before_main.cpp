// A function that runs before the constructors of LibTorch and libgomp, which take about nine tenths of the time from
// exec to main (0.2 s). It stands in .preinit_array: the dynamic linker calls it before any constructor, about 20 ms
// after exec. It requires a current folder. It blocks the stop signals, so that none ends the process before main can
// handle them (stop_signal.h). And it sets how libgomp's threads wait (openmp_wait.h).
//
// setenv would have no effect yet: the C library only later takes its environment from the process's first stack, and
// that list has no room for another entry. So the function overwrites an entry that no constructor reads, and a
// constructor puts it back before main.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "trireme/base/stop_signals.h"
#include "trireme/launch/identity/openmp_wait.h"

// Sanitizers initialise later and must not be called before, so their builds do without this.
#ifndef TRIREME_SANITIZED

// Nothing is initialised yet: no allocation, and no call of the C library except bare system calls.
namespace {

using trireme::launch::kWaitNames;

char spin_entry[] = "GOMP_SPINCOUNT=2000";
static_assert(trireme::launch::kSpinName == "GOMP_SPINCOUNT" && trireme::launch::kSpinCount == "2000");

// First what shells set in every process, last what every process has.
constexpr std::string_view kLenders[] = {"_",   "OLDPWD", "SHLVL", "LS_COLORS", "HOSTNAME",
                                         "PWD", "TERM",   "HOME",  "PATH"};

char* lent = nullptr;

bool is_named(const char* entry, std::string_view name) {
  for (std::size_t i = 0; i < name.size(); ++i)
    if (entry[i] != name.data()[i]) return false;
  return entry[name.size()] == '=';
}

char** find(char** environment, std::string_view name) {
  for (char** entry = environment; *entry != nullptr; ++entry)
    if (is_named(*entry, name)) return entry;
  return nullptr;
}

void choose_wait(char** environment) {
  for (const std::string_view& name : kWaitNames)
    if (find(environment, name) != nullptr) return;
  for (const std::string_view& name : kLenders) {
    char** const place = find(environment, name);
    if (place == nullptr) continue;
    lent = *place;
    *place = spin_entry;
    return;
  }
}

void block_stop_signals() {
  unsigned long stops = 0;
  for (const int number : trireme::base::kStopSignals) stops |= 1ul << (number - 1);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &stops, nullptr, sizeof stops);
}

// MKL's constructor would end the process with words about a library.
void require_current_folder() {
  constexpr std::string_view kGone = "error: the current folder is gone; change to one that exists\n";
  char folder[4096];
  if (syscall(SYS_getcwd, folder, sizeof folder) >= 0 || errno != ENOENT) return;
  syscall(SYS_write, 2, kGone.data(), kGone.size());
  syscall(SYS_exit_group, 2);
}

void before_constructors(int, char**, char** environment) {
  require_current_folder();
  block_stop_signals();
  choose_wait(environment);
}

__attribute__((section(".preinit_array"), used)) void (*const kBeforeConstructors)(int, char**,
                                                                                   char**) = before_constructors;

// Runs after the constructors of all libraries, before the program's own.
__attribute__((constructor(101))) void give_back() {
  if (lent != nullptr) putenv(lent);
}

}  // namespace

#endif
