// SPDX-License-Identifier: Apache-2.0
#include "interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <utility>

namespace inflight::tool {
namespace {

// A signal handler reaches nothing else. The pipe wakes a reader also where the signal comes just
// before it waits.
std::atomic<bool> g_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);
int g_wake_pipe[2] = {-1, -1};

// Bytes of the first character, 1 of what is none; 0 where more have to come.
size_t Utf8Length(std::string_view text) {
  if (text.empty()) return 0;
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0xC2 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 1;
  for (size_t i = 1; i < size && i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  return text.size() < size ? 0 : size;
}

wchar_t FromUtf8(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x80 ? static_cast<wchar_t>(first) : L'\uFFFD';
  uint32_t code = first & (0x7FU >> character.size());
  for (const char next : character.substr(1))
    code = (code << 6) | (static_cast<unsigned char>(next) & 0x3FU);
  const bool is_surrogate = code >= 0xD800 && code < 0xE000;
  return is_surrogate || code > 0x10FFFF ? L'\uFFFD' : static_cast<wchar_t>(code);
}

void OnInterrupt(int) {
  const int error = errno;
  g_interrupted.store(true);
  [[maybe_unused]] const ssize_t size = write(g_wake_pipe[1], "", 1);
  errno = error;
}

}  // namespace

InterruptScope::InterruptScope() {
  if (pipe2(g_wake_pipe, O_NONBLOCK | O_CLOEXEC) != 0) return;  // then Ctrl-C ends the program
  struct sigaction action {};
  action.sa_handler = OnInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

InterruptScope::~InterruptScope() {
  std::signal(SIGINT, SIG_DFL);
  for (int& fd : g_wake_pipe)
    if (fd >= 0) close(std::exchange(fd, -1));
}

bool InterruptScope::TakeFlag() {
  char drained[16];
  while (read(g_wake_pipe[0], drained, sizeof drained) > 0) {
  }
  return g_interrupted.exchange(false);
}

// Ctrl-C makes a terminal forget what was typed, maybe between poll and read: reads must not wait.
// A terminal opened anew is set so without touching the one that the shell has.
LineReader::LineReader() : fd_(STDIN_FILENO) {
  const char* terminal = isatty(STDIN_FILENO) == 1 ? ttyname(STDIN_FILENO) : nullptr;
  if (terminal == nullptr) return;
  const int fd = open(terminal, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (fd >= 0) fd_ = fd;
}

LineReader::~LineReader() {
  if (fd_ != STDIN_FILENO) close(fd_);
}

LineEvent LineReader::Next(std::string& line) {
  for (;;) {
    const size_t newline = pending_.find('\n');
    if (newline != std::string::npos || (at_end_ && !pending_.empty())) {
      line = pending_.substr(0, newline);
      pending_.erase(0, newline == std::string::npos ? pending_.size() : newline + 1);
      if (line.ends_with('\r')) line.pop_back();
      return LineEvent::kLine;
    }
    const LineEvent event = Fill();
    const bool has_rest = event == LineEvent::kEnd && !pending_.empty();
    if (event != LineEvent::kLine && !has_rest) return event;
  }
}

LineEvent LineReader::NextCharacter(wchar_t& character) {
  for (;;) {
    if (const size_t size = Utf8Length(pending_); size > 0) {
      character = FromUtf8(std::string_view(pending_).substr(0, size));
      pending_.erase(0, size);
      return LineEvent::kLine;
    }
    const LineEvent event = Fill();
    if (event == LineEvent::kLine) continue;
    pending_.clear();  // the beginning of a character
    return event;
  }
}

LineEvent LineReader::Fill() {
  for (;;) {
    if (at_end_) return LineEvent::kEnd;
    pollfd waits[2] = {{fd_, POLLIN, 0}, {g_wake_pipe[0], POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) {
      at_end_ = true;
      continue;
    }
    if (InterruptScope::TakeFlag()) {
      pending_.clear();
      return LineEvent::kInterrupted;
    }
    if (waits[0].revents == 0) continue;
    char buffer[4096];
    const ssize_t size = read(fd_, buffer, sizeof buffer);
    if (size > 0) {
      pending_.append(buffer, static_cast<size_t>(size));
      return LineEvent::kLine;
    }
    if (size == 0 || (errno != EINTR && errno != EAGAIN)) at_end_ = true;
  }
}

}  // namespace inflight::tool
