// SPDX-License-Identifier: Apache-2.0
// The tokenizer in a GGUF file's metadata (ggml-org/ggml/docs/gguf.md, "Tokenizer").
//
// tokenizer.ggml.model:
//   gpt2    byte-level BPE: tokens and merges; tokenizer.ggml.pre names how words are found, of
//           which those of kWordRules are supported
//   llama   SentencePiece BPE: tokens, scores and types. A blank stands in front of each text
//           between special tokens unless add_space_prefix is false
//
// tokenizer.ggml.token_type, by id: 0 none, as unused under llama, 1 normal, 2 unknown, 3 control
// (a special token), 4 user-defined (cut out of the text first, and shown), 5 unused, 6 a byte.
// add_bos_token and add_eos_token say what stands around a text.
#pragma once

#include "gguf/metadata.h"
#include "tokenizer/definition.h"

namespace inflight::tokenizer {

// kInvalidArgument, kUnimplemented name the key.
Result<Definition> ReadGguf(const gguf::Metadata& metadata);

}  // namespace inflight::tokenizer
