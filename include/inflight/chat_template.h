// SPDX-License-Identifier: Apache-2.0
// A model's chat template: a conversation -> the text that the model was trained to continue.
//
// Texts equal those of transformers' apply_chat_template. Templates are written in Jinja; the part
// of it that published templates use is supported, and the rest is refused by name and line when a
// template is loaded. A template is somebody else's program: it sees nothing but its variables and
// the time, changes none of them, and its work, depth and output are bounded.
//
// Threads: immutable after Load; Render may run on any thread. Copies share what was loaded.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "inflight/status.h"

namespace inflight {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"; a template may know others
  std::string content;
};

class ChatTemplate {
 public:
  // From chat_template.jinja of a model directory, else from "chat_template" of its
  // tokenizer_config.json (a text, or a list of {name, template} of which "default" counts).
  // Of a GGUF file, or a directory with a tokenizer.gguf, it is tokenizer.chat_template.
  // `file`, where not empty, is read instead; where there is no such file it may be the name of a
  // family's template. kNotFound where there is none; errors name the file.
  static Result<ChatTemplate> Load(const std::filesystem::path& model_dir,
                                   const std::filesystem::path& file = {});

  // Of families' templates: "chatml, llama3".
  static std::string Names();

  // The conversation, with what begins the model's turn. Templates write special tokens themselves:
  // encode the text with add_special_tokens = false. kInvalidArgument: the template's own words
  // where it raises, else "line N: ...".
  Result<std::string> Render(std::span<const ChatMessage> messages) const;

  // The template itself, as its file has it.
  std::string_view source() const;
  // Where it is from: the name of the file, "tokenizer_config.json", or that of a family's
  // template.
  std::string_view origin() const;

  // By variables of the caller: a JSON object such as {"messages": [...], "tools": [...],
  // "add_generation_prompt": true}. Names of special tokens (bos_token, eos_token, ...) have the
  // model's own values unless the object says otherwise.
  Result<std::string> RenderJson(std::string_view variables) const;

 private:
  struct Parts;
  explicit ChatTemplate(std::shared_ptr<const Parts> parts);
  std::shared_ptr<const Parts> parts_;
};

}  // namespace inflight
