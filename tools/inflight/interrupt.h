// SPDX-License-Identifier: Apache-2.0
// Ctrl-C as a flag, and lines from standard input that it does not lose.
#pragma once

#include <optional>
#include <string>

namespace inflight::tool {

// SIGINT sets a flag for as long as one of these exists.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  static bool TakeFlag();  // whether SIGINT came since the last call
};

enum class LineEvent { kLine, kInterrupted, kEnd };

// Lines of standard input, read without stdio, which would not see an interrupt.
class LineReader {
 public:
  LineReader();
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // kInterrupted drops what was typed of the line. The last line may lack its newline.
  LineEvent Next(std::string& line);
  // One character of UTF-8, kLine where there is one; bytes that are none are U+FFFD.
  LineEvent NextCharacter(wchar_t& character);

 private:
  // Waits for bytes and appends them to pending_; kEnd at the end of the input.
  LineEvent Fill();

  int fd_;
  std::string pending_;
  bool at_end_ = false;
};

}  // namespace inflight::tool
