// SPDX-License-Identifier: Apache-2.0
// What a person sends to `inflight chat`: a line, or the lines between two times """.
//
// Threads: one.
#pragma once

#include <string>

#include "inflight/status.h"
#include "line_editor.h"

namespace inflight::tool {

struct ChatInput {
  LineEvent event = LineEvent::kEnd;
  std::string text;
  bool is_quoted = false;  // it stood between """, and is no command
};

// kInvalidArgument where the input ends before a text that """ began does.
Result<ChatInput> ReadChatInput(LineEditor& editor);

}  // namespace inflight::tool
