// SPDX-License-Identifier: Apache-2.0
#include "serving/preprocessing_model.h"

#include <array>
#include <utility>

#include "contract/tensor_values.h"
#include "serving/text_call.h"

namespace inflight::serving {
namespace {

constexpr TokenId kNoToken = -1;

Tensor Ids(std::string name, std::vector<int64_t> shape, std::span<const int32_t> ids) {
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, std::move(shape), ids);
}

Tensor OneId(std::string name, int32_t id) {
  return Ids(std::move(name), {1, 1}, std::span(&id, 1));
}

// [1, 2, n], or [1, 2, 0] when the client sent no list at all.
Tensor WordList(std::string name, const contract::Words* words) {
  if (words == nullptr) return Ids(std::move(name), {1, 2, 0}, {});
  const std::vector<int32_t> list = contract::EncodeWordList(*words);
  return Ids(std::move(name), {1, 2, static_cast<int64_t>(list.size() / 2)}, list);
}

size_t TextBytes(const Request& request) {
  size_t bytes = 0;
  for (const Tensor& input : request.inputs) {
    if (input.datatype == DataType::kBytes) bytes += input.data.size();
  }
  return bytes;
}

Status CheckOneRow(const Tensor& tensor) {
  if (!tensor.shape.empty() && tensor.shape.front() == 1) return Status::Ok();
  return InvalidArgument(
      "Inflight batching backend expects requests with batch size of 1. (" + tensor.name + " has " +
      std::to_string(tensor.shape.empty() ? 0 : tensor.shape.front()) + " rows)");
}

}  // namespace

PreprocessingModel::PreprocessingModel(::inference::ModelConfig config, std::string version,
                                       PreprocessingOptions options, Clock& clock)
    : Model(std::move(config), std::move(version)), options_(std::move(options)), clock_(clock) {}

void PreprocessingModel::Infer(Request request, ResponseHandler handler) {
  WorkerPool* pool = TextBytes(request) > kInlineTextBytes ? options_.text_pool.get() : nullptr;
  RunTextCall(*this, pool, clock_, std::move(request), std::move(handler),
              [this](const Request& r) { return Run(r); });
}

Result<std::vector<TokenId>> PreprocessingModel::EncodePrompt(const Tensor& query) const {
  RETURN_IF_ERROR(CheckOneRow(query));
  ASSIGN_OR_RETURN(const auto strings, query.Strings());
  if (strings.empty()) return InvalidArgument(query.name + ": got no text, expected one string");
  auto ids = options_.tokenizer->Encode(strings.front(), options_.add_special_tokens);
  if (!ids.ok()) return ids.status().WithPrefix(query.name);
  return ids;
}

Result<contract::Words> PreprocessingModel::EncodeWords(const Tensor& words) const {
  RETURN_IF_ERROR(CheckOneRow(words));
  ASSIGN_OR_RETURN(const auto strings, words.Strings());
  contract::Words encoded;
  for (const std::string_view word : strings) {
    auto ids = options_.tokenizer->Encode(word, /*add_special_tokens=*/false);
    if (!ids.ok()) return ids.status().WithPrefix(words.name);
    if (!word.empty() && !ids->empty()) encoded.push_back(std::move(*ids));
  }
  return encoded;
}

Status PreprocessingModel::CheckUnsupportedText(const Tensor& tensor) const {
  ASSIGN_OR_RETURN(const auto strings, tensor.Strings());
  for (const std::string_view text : strings) {
    if (!text.empty()) return Unimplemented(tensor.name + " is not supported yet");
  }
  return Status::Ok();
}

Result<std::vector<Tensor>> PreprocessingModel::Run(const Request& request) const {
  const Tensor* query = request.FindInput("QUERY");
  const Tensor* output_len = request.FindInput("REQUEST_OUTPUT_LEN");
  if (query == nullptr) return InvalidArgument("QUERY is not present in the request");
  if (output_len == nullptr) {
    return InvalidArgument("REQUEST_OUTPUT_LEN is not present in the request");
  }
  for (const char* name : {"DECODER_QUERY", "EMBEDDING_BIAS_WORDS"}) {
    if (const Tensor* text = request.FindInput(name)) RETURN_IF_ERROR(CheckUnsupportedText(*text));
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids, EncodePrompt(*query));
  std::array<std::optional<contract::Words>, 2> words;  // bad, stop
  constexpr std::array<const char*, 2> kWordInputs = {"BAD_WORDS_DICT", "STOP_WORDS_DICT"};
  for (size_t i = 0; i < words.size(); ++i) {
    if (const Tensor* list = request.FindInput(kWordInputs[i])) {
      ASSIGN_OR_RETURN(words[i], EncodeWords(*list));
    }
  }
  TokenId end_id = options_.tokenizer->eos_id().value_or(kNoToken);
  TokenId pad_id = options_.pad_is_eos ? end_id : options_.tokenizer->pad_id().value_or(end_id);
  if (const Tensor* end = request.FindInput("END_ID")) {
    ASSIGN_OR_RETURN(end_id, contract::ReadInt32(*end));
  }
  if (const Tensor* pad = request.FindInput("PAD_ID")) {
    ASSIGN_OR_RETURN(pad_id, contract::ReadInt32(*pad));
  }

  std::vector<Tensor> all;
  all.push_back(Ids("INPUT_ID", {1, static_cast<int64_t>(ids.size())}, ids));
  all.push_back(OneId("REQUEST_INPUT_LEN", static_cast<int32_t>(ids.size())));
  all.push_back(OneId("DECODER_INPUT_ID", pad_id));
  all.push_back(OneId("REQUEST_DECODER_INPUT_LEN", 1));
  all.push_back(WordList("BAD_WORDS_IDS", words[0] ? &*words[0] : nullptr));
  all.push_back(WordList("STOP_WORDS_IDS", words[1] ? &*words[1] : nullptr));
  all.push_back(*output_len);
  all.push_back(Tensor::FromBytes("EMBEDDING_BIAS", DataType::kFp32, {1, 0}, {}));
  all.push_back(OneId("OUT_END_ID", end_id));
  all.push_back(OneId("OUT_PAD_ID", pad_id));
  std::vector<Tensor> outputs;  // what this release's configuration declares, and the client wants
  for (const auto& declared : config().output()) {
    if (!request.WantsOutput(declared.name())) continue;
    for (Tensor& tensor : all) {
      if (tensor.name == declared.name()) outputs.push_back(std::move(tensor));
    }
  }
  return outputs;
}

}  // namespace inflight::serving
