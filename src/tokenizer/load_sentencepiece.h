// SPDX-License-Identifier: Apache-2.0
// Tokenizers of a SentencePiece model (tokenizer.model), bare or dressed by a transformers class.
//
// Which class: tokenizer_class of tokenizer_config.json, else the architecture or model_type in
// config.json; anything but the following is refused by name.
//
//   bare   no class is named. Ids and texts are those of the `sentencepiece` package: control
//          pieces are never found in text nor shown, an unknown piece is decoded to unk_surface.
//          add_bos_token and add_eos_token of tokenizer_config.json are false unless they are set.
//   Llama  LlamaTokenizer as AutoTokenizer makes it. Control and user-defined pieces, added tokens
//          and bos, eos, unk, pad are cut out of the text first. `legacy`: each text between them
//          gets a blank in front; else (the default, upstream's setting) the start of the input
//          alone, unless a blank is there. BOS in front unless add_bos_token is false.
//   T5     the same cutting, with <extra_id_N>; `legacy`: each text between gets a blank in front
//          unless one is there. EOS behind.
#pragma once

#include <filesystem>
#include <string_view>

#include "tokenizer/config_files.h"
#include "tokenizer/definition.h"
#include "tokenizer/sentencepiece_proto.h"

namespace inflight::tokenizer {

// A bare one. kInvalidArgument, kUnimplemented name the field.
Result<Definition> ReadSentencePiece(std::string_view model);

// `dir / name`, with what `files` say.
Result<Definition> LoadSentencePiece(const std::filesystem::path& dir, std::string_view name,
                                     const ConfigFiles& files);

// The class Llama around pieces that came in another file.
Result<Definition> MakeLlamaTokenizer(const SentencePieceProto& proto, const ConfigFiles& files);

// What stands around a text's ids: those of the definition that it has.
void SetTemplate(bool add_bos, bool add_eos, Definition& definition);

}  // namespace inflight::tokenizer
