// SPDX-License-Identifier: Apache-2.0
// The formats in which models write calls of tools, a file for each:
// docs/reference/protocol/openai.md lists them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "answer_parts/call_reader.h"
#include "inflight/status.h"

namespace inflight::answer_parts {

// `names` outlives the reader.
using MakeReader = std::unique_ptr<CallReader>(const FunctionNames& names);
MakeReader MakeDeepSeekReader, MakeGemmaReader, MakeHarmonyReader, MakeHermesReader, MakeListReader,
    MakeLlamaReader, MakeMistralReader, MakePythonicReader, MakeQwenCoderReader, MakeSeedReader;

// How calls are written: `before`, calls with `between` two of them, `after`; each call is its
// function's name and its arguments with the texts around these. Readers take more than that.
struct WrittenCalls {
  std::string_view before = {};
  std::string_view before_name = {};
  std::string_view behind_name = {};
  std::string_view behind_arguments = {};
  std::string_view between = {};
  std::string_view after = {};
  std::string_view arguments = "json";  // docs/reference/structured-output.md, "Tagged"
  // Where readers see that calls begin: all where `before` has it, else each. Empty: by what
  // stands at the text's beginning.
  std::string_view trigger = {};
  std::string_view other_trigger = {};  // that the reader takes and such models do not write
  // Where readers see that a call has ended, whatever of `behind_arguments` follows it; empty: with
  // all of that.
  std::string_view end_of_call = {};
  // Of answers in channels: messages that may stand before calls, the first of them reasoning, and
  // what ends each; what begins the message that there may be in place of calls. Markers are in
  // none.
  std::array<std::string_view, 2> preambles = {};
  std::string_view preamble_end = {};
  std::string_view otherwise = {};
  // Of formats without a trigger: an expression of the whole texts that may stand in place of
  // calls, none of which a reader takes for one. Markers are in none.
  std::string_view instead = {};
  bool is_single = false;  // an answer has one call at most
};

struct CallFormat {
  std::string_view name;  // of --tool-call-format
  // Texts that the templates of such models have, all of them.
  std::array<std::string_view, 2> template_has;
  // Texts that are special tokens in some models: readers need them told. Equal in all rows of one
  // name.
  std::array<std::string_view, 7> markers;
  MakeReader* make;
  WrittenCalls written;
  bool has_channels = false;  // the reader tells reasoning, too, and headers of content are its own
  bool short_ids = false;     // of calls: templates take none but those of nine letters and digits
};

std::string CallFormatNames();  // "deepseek, hermes"

// Of a model, by the text of its chat template; null where it shows none that is known.
const CallFormat* FindCallFormat(std::string_view chat_template);

// By name; kInvalidArgument lists the names.
Result<const CallFormat*> CallFormatNamed(std::string_view name);

}  // namespace inflight::answer_parts
