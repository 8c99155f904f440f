// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight {
namespace {

constexpr int kFirstOther = 3;  // behind standard input, output and error

Status NotStarted(const std::filesystem::path& program, int error) {
  const StatusCode code = error == ENOENT                     ? StatusCode::kNotFound
                          : error == EACCES || error == EPERM ? StatusCode::kPermissionDenied
                                                              : StatusCode::kFailedPrecondition;
  return {code, fmt::format("{} is not started: {}", program.string(),
                            std::generic_category().message(error))};
}

std::string HowOf(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  const char* const name = sigdescr_np(WTERMSIG(status));
  return fmt::format("signal {} ({})", WTERMSIG(status), name == nullptr ? "unknown" : name);
}

// What posix_spawn is told, freed with it.
class SpawnRules {
 public:
  explicit SpawnRules(int input) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions_, kFirstOther);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGTERM);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnRules() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnRules(const SpawnRules&) = delete;
  SpawnRules& operator=(const SpawnRules&) = delete;

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const std::filesystem::path& program, const std::vector<std::string>& arguments,
    std::function<void(const std::string& how)> on_end) {
  // Where whoever started this program has them ignored, nobody learns how a child ended.
  struct sigaction on_child {};
  if (sigaction(SIGCHLD, nullptr, &on_child) == 0 && on_child.sa_handler == SIG_IGN)
    signal(SIGCHLD, SIG_DFL);
  std::array<int, 2> ends = {};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return NotStarted(program, errno);
  Descriptor ours(ends[0]);
  const Descriptor its(ends[1]);
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const SpawnRules rules(its.get());
  pid_t id = 0;
  const int error =
      posix_spawn(&id, program.c_str(), rules.actions(), rules.attributes(), words.data(), environ);
  if (error != 0) return NotStarted(program, error);
  return std::unique_ptr<ChildProcess>(new ChildProcess(id, std::move(ours), std::move(on_end)));
}

ChildProcess::ChildProcess(pid_t id, Descriptor input,
                           std::function<void(const std::string& how)> on_end)
    : id_(id), on_end_(std::move(on_end)), input_(std::move(input)) {
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Wait(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ChildProcess::~ChildProcess() {
  {
    const std::lock_guard lock(mutex_);
    if (!how_) kill(id_, SIGKILL);
  }
  thread_.join();
}

Status ChildProcess::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = send(input_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0)
      return Unavailable(fmt::format("process {} takes no input: {}", id_,
                                     std::generic_category().message(errno)));
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return Status::Ok();
}

std::optional<std::string> ChildProcess::how_it_ended() const {
  const std::lock_guard lock(mutex_);
  return how_;
}

bool ChildProcess::WaitUntilEnded(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, patience, [this] { return how_.has_value(); });
}

void ChildProcess::Wait() {
  NameThisThread("child-wait");
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(id_), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  std::string how;
  {
    // Until here the id is this program's, and may be killed.
    const std::lock_guard lock(mutex_);
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    while (!RunTurn("child-wait", [&] { how_ = how = HowOf(status); })) {
    }
  }
  ended_.notify_all();
  if (on_end_) RunTurn("child-wait", [&] { on_end_(how); });
}

}  // namespace inflight
