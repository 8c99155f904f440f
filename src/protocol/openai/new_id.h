// SPDX-License-Identifier: Apache-2.0
// Ids of answers and of the calls in them.
#pragma once

#include <string>
#include <string_view>

#include "answer_parts/answer_parser.h"

namespace inflight::openai {

// `prefix` and 128 random bits of the kernel's, which nobody guesses: who has the id of a stored
// response may go on from it.
std::string NewId(std::string_view prefix);

// Of a call; without the prefix, and short, where the model's templates take no other.
std::string NewCallId(const answer_parts::AnswerFormat& format, std::string_view prefix);

}  // namespace inflight::openai
