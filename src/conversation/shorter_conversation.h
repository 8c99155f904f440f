// SPDX-License-Identifier: Apache-2.0
// Conversations that begin later, for models that cannot take the whole. Messages of the role
// system stay, and so does the last one.
#pragma once

#include <cstddef>
#include <vector>

#include "conversation/conversation.h"

namespace inflight::conversation {

// Indices of messages that the conversation may begin with in place of its first, in their order:
// those of the user; behind the last of these also the assistant's, with whose calls their results
// go.
std::vector<size_t> LaterBegins(const Conversation& conversation);

// Without the messages before this one, but for those of the role system.
Conversation BeginningAt(const Conversation& conversation, size_t message);

}  // namespace inflight::conversation
