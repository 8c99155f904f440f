// SPDX-License-Identifier: Apache-2.0
// Lines that a person types: on a terminal with editing and a history, by libedit where it is
// there; else as the system hands them over.
//
//   HISTORY_FILE   a line each, the oldest first; for its owner alone (0600)
//
// Threads: one. An InterruptScope has to be there.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "interrupt.h"

namespace inflight::tool {

// $XDG_STATE_HOME/inflight/chat_history, else ~/.local/state/inflight/chat_history; empty where
// neither is known.
std::filesystem::path DefaultHistoryFile();

class LineEditor {
 public:
  static constexpr int kMaxHistory = 1000;  // lines that are kept

  // `history_file` empty: lines are remembered until the end of the process alone. A file that
  // cannot be read or written is none.
  explicit LineEditor(const std::filesystem::path& history_file);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Shows `prompt` on a terminal alone. kInterrupted (Ctrl-C) drops what was typed of the line.
  LineEvent Next(const char* prompt, std::string& line);

  // Makes the line the newest one of the history.
  void Remember(const std::string& line);

  bool is_terminal() const { return is_terminal_; }

 private:
  struct Edited;  // of libedit

  const bool is_terminal_;
  LineReader reader_;
  std::unique_ptr<Edited> edited_;  // null: the system's lines
};

}  // namespace inflight::tool
