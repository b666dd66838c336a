// Preloaded, it lets scripts run the program many times and load it once: LibTorch registers its operators before main,
// which takes 0.1 to 0.2 s of each start. The process stops before main and forks for each request; the child runs main
// of the program with the request's words, environment, folder and standard descriptors. Nothing has started a
// thread by then, so a child is as sound as a new process. What it starts itself (ranks) is started as ever.
// loaded_once.py sends the requests.
//
// A request: 4 bytes of length, with the descriptors 0, 1 and 2; then strings that end in NUL: the folder, the number
// of words, the words, the environment. The answers: the process id; then the status of waitpid and its processor time
// in microseconds.
#include <dlfcn.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Main = int (*)(int, char**, char**);
using StartMain = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);

constexpr int kStandard = 3;  // descriptors

Main program = nullptr;

[[noreturn]] void end_with(const char* what) {
  std::perror(what);
  _exit(1);
}

struct Request {
  std::array<int, kStandard> descriptors{};
  std::vector<char> text;
};

void read_all(int socket, void* to, std::size_t size) {
  for (char* at = static_cast<char*>(to); size > 0;) {
    const ssize_t got = read(socket, at, size);
    if (got <= 0) _exit(0);  // the script is gone
    at += got, size -= static_cast<std::size_t>(got);
  }
}

void write_all(int socket, const void* from, std::size_t size) {
  if (send(socket, from, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) _exit(0);
}

Request receive(int socket) {
  Request request;
  uint32_t length = 0;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof request.descriptors)];
  iovec part{&length, sizeof length};
  msghdr message{};
  message.msg_iov = &part, message.msg_iovlen = 1;
  message.msg_control = control, message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, MSG_WAITALL) != sizeof length) _exit(0);
  const cmsghdr* held = CMSG_FIRSTHDR(&message);
  if (held == nullptr || held->cmsg_len != CMSG_LEN(sizeof request.descriptors)) end_with("no descriptors");
  std::memcpy(request.descriptors.data(), CMSG_DATA(held), sizeof request.descriptors);
  request.text.resize(length);
  read_all(socket, request.text.data(), length);
  return request;
}

std::vector<char*> strings_of(std::vector<char>& text) {
  std::vector<char*> strings;
  for (std::size_t at = 0; at < text.size(); at += std::strlen(&text[at]) + 1) strings.push_back(&text[at]);
  return strings;
}

[[noreturn]] void run(int socket, Request& request) {
  close(socket);
  for (int i = 0; i < kStandard; ++i) dup2(request.descriptors[i], i);
  for (const int descriptor : request.descriptors)
    if (descriptor >= kStandard) close(descriptor);
  const std::vector<char*> strings = strings_of(request.text);
  if (chdir(strings.at(0)) != 0) end_with(strings[0]);
  const auto num_words = static_cast<std::size_t>(std::atoi(strings.at(1)));
  std::vector<char*> words(strings.begin() + 2, strings.begin() + 2 + static_cast<std::ptrdiff_t>(num_words));
  words.push_back(nullptr);
  clearenv();
  for (std::size_t i = 2 + num_words; i < strings.size(); ++i) putenv(strings[i]);
  std::exit(program(static_cast<int>(num_words), words.data(), environ));
}

void serve(int socket) {
  while (true) {
    Request request = receive(socket);
    const pid_t child = fork();
    if (child == 0) run(socket, request);
    if (child < 0) end_with("fork");
    for (const int descriptor : request.descriptors) close(descriptor);
    const int32_t id = child;
    write_all(socket, &id, sizeof id);
    int status = 0;
    rusage used{};
    while (wait4(child, &status, 0, &used) < 0) {
    }
    const auto microseconds = [](const timeval& time) { return int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
    const std::array<int64_t, 2> end{status, microseconds(used.ru_utime) + microseconds(used.ru_stime)};
    write_all(socket, end.data(), sizeof end);
  }
}

int main_of_all(int count, char** words, char** environment) {
  const char* socket = std::getenv("LOADED_ONCE");
  if (socket == nullptr) return program(count, words, environment);
  serve(std::atoi(socket));
  return 0;
}

}  // namespace

extern "C" int __libc_start_main(Main main, int count, char** words, void (*init)(), void (*fini)(),
                                 void (*linker_fini)(), void* stack_end) {
  program = main;
  const auto start = reinterpret_cast<StartMain>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(main_of_all, count, words, init, fini, linker_fini, stack_end);
}
