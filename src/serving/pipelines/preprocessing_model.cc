// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/preprocessing_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "contract/rows.h"
#include "contract/tensor_values.h"
#include "conversation/messages_text.h"
#include "serving/pipelines/text_call.h"

namespace inflight::serving {
namespace {

constexpr TokenId kNoToken = -1;
// Inputs that any value of which has its meaning; of others only what asks for nothing.
constexpr auto kHonoured = std::to_array<std::string_view>(
    {"QUERY", "MESSAGES", "REQUEST_OUTPUT_LEN", "BAD_WORDS_DICT", "STOP_WORDS_DICT", "END_ID",
     "PAD_ID", "EMBEDDING_BIAS_WORDS", "EMBEDDING_BIAS_WEIGHTS", "PROMPT_EMBEDDING_TABLE",
     "PROMPT_TABLE_EXTRA_ID"});
constexpr size_t kMaxQuotedBytes = 64;  // of a client's word in an error
constexpr size_t kMaxPaddedBytes = size_t{256} << 20;

Tensor Ids(std::string name, std::vector<int64_t> shape, std::span<const int32_t> ids) {
  return Tensor::FromValues<int32_t>(std::move(name), DataType::kInt32, std::move(shape), ids);
}

// [B, 1]
Tensor IdPerRow(std::string name, const std::vector<int32_t>& ids) {
  return Ids(std::move(name), {static_cast<int64_t>(ids.size()), 1}, ids);
}

// Rows of a tensor are as wide as the widest: one long text among many short ones is little to send
// and much to hold. `charge` is for the outputs, and grows before they are made.
Status ChargePadded(std::string_view name, size_t num_rows, size_t width, MemoryCharge& charge) {
  static_assert(sizeof(TokenId) == 4 && sizeof(float) == 4);
  const size_t num_bytes = num_rows * width * 4;
  if (num_bytes <= kMaxPaddedBytes) return charge.Resize(charge.bytes() + num_bytes);
  return InvalidArgument(std::string(name),
                         fmt::format("{} rows padded to the longest, of {} values, take {} bytes, "
                                     "at most {} are allowed; send long rows by "
                                     "themselves",
                                     num_rows, width, num_bytes, kMaxPaddedBytes));
}

// [B, longest], the shorter rows padded at their end.
Result<Tensor> PaddedRows(std::string name, const std::vector<std::vector<TokenId>>& rows,
                          TokenId pad_id, MemoryCharge& charge) {
  size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  RETURN_IF_ERROR(ChargePadded(name, rows.size(), longest, charge));
  std::vector<int32_t> padded;
  padded.reserve(rows.size() * longest);
  for (const auto& row : rows) {
    padded.insert(padded.end(), row.begin(), row.end());
    padded.resize(padded.size() + longest - row.size(), pad_id);
  }
  return Ids(std::move(name), {static_cast<int64_t>(rows.size()), static_cast<int64_t>(longest)},
             padded);
}

// [B, 2, widest]
Result<Tensor> WordLists(std::string name, const std::vector<contract::Words>& rows,
                         MemoryCharge& charge) {
  size_t width = 1;
  for (const contract::Words& words : rows) width = std::max(width, contract::NumIds(words));
  RETURN_IF_ERROR(ChargePadded(name, rows.size(), 2 * width, charge));
  std::vector<int32_t> lists;
  for (const contract::Words& words : rows) {
    const std::vector<int32_t> list = contract::EncodeWordList(words, width);
    lists.insert(lists.end(), list.begin(), list.end());
  }
  return Ids(std::move(name), {static_cast<int64_t>(rows.size()), 2, static_cast<int64_t>(width)},
             lists);
}

// [B, vocab_size], or [B, 0] where no row has any; a row without a bias has zeros.
Result<Tensor> PaddedBiases(std::string name, const std::vector<std::vector<float>>& rows,
                            MemoryCharge& charge) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.size());
  RETURN_IF_ERROR(ChargePadded(name, rows.size(), width, charge));
  std::vector<float> biases;
  for (const auto& row : rows) {
    biases.insert(biases.end(), row.begin(), row.end());
    biases.resize(biases.size() + width - row.size());
  }
  return Tensor::FromValues<float>(std::move(name), DataType::kFp32,
                                   {static_cast<int64_t>(rows.size()), static_cast<int64_t>(width)},
                                   biases);
}

// For as long as any of `tensors` is there.
void KeepCharge(MemoryCharge charge, std::vector<Tensor>& tensors) {
  if (charge.share() == nullptr) return;
  const auto kept = std::make_shared<const MemoryCharge>(std::move(charge));
  for (Tensor& tensor : tensors) {
    tensor.owner = std::make_shared<
        const std::pair<std::shared_ptr<const void>, std::shared_ptr<const MemoryCharge>>>(
        std::move(tensor.owner), kept);
  }
}

bool AllZero(const Tensor& tensor) {
  return std::ranges::all_of(tensor.data, [](std::byte b) { return b == std::byte{0}; });
}

// [B, longest]: every token is ordinary text, none of a prompt table.
// [B, width] a row's extra id for each of its ids that no vocabulary has, else 0.
Tensor ExtraIds(std::string name, const std::vector<std::vector<TokenId>>& ids,
                const std::vector<uint64_t>& extra_ids, int vocab_size, int64_t width) {
  std::vector<uint64_t> values(ids.size() * static_cast<size_t>(width));
  for (size_t row = 0; row < ids.size(); ++row) {
    uint64_t* const to = values.data() + row * static_cast<size_t>(width);
    for (size_t i = 0; i < ids[row].size(); ++i)
      to[i] = ids[row][i] >= vocab_size ? extra_ids[row] : 0;
  }
  return Tensor::FromValues<uint64_t>(std::move(name), DataType::kUint64, {std::ssize(ids), width},
                                      values);
}

size_t TextBytes(const Request& request) {
  size_t bytes = 0;
  for (const Tensor& input : request.inputs) {
    if (input.datatype == DataType::kBytes) bytes += input.data.size();
  }
  return bytes;
}

}  // namespace

PreprocessingModel::PreprocessingModel(::inference::ModelConfig config, std::string version,
                                       PreprocessingOptions options, Clock& clock)
    : Model(std::move(config), std::move(version)), options_(std::move(options)), clock_(clock) {}

void PreprocessingModel::Infer(Request request, ResponseHandler handler) {
  const size_t text_bytes = TextBytes(request);
  WorkerPool* pool = text_bytes > kInlineTextBytes ? options_.text_pool.get() : nullptr;
  RunTextCall(
      *this, pool, clock_, std::move(request), std::move(handler),
      [this](const Request& r) { return Run(r); }, LengthOf(text_bytes));
}

size_t MaxPromptBytes(const Tokenizer& tokenizer, int max_tokens) {
  return tokenizer.MaxBytesPerToken().value_or(0) * static_cast<size_t>(max_tokens);
}

Result<std::vector<TokenId>> PreprocessingModel::EncodePrompt(const Tensor& query) const {
  ASSIGN_OR_RETURN(const auto strings, query.Strings());
  if (strings.empty()) return InvalidArgument(query.name + ": got no text, expected one string");
  RETURN_IF_ERROR(CheckPromptBytes(query, strings.front().size()));
  auto ids = options_.tokenizer->Encode(strings.front(), options_.add_special_tokens);
  if (!ids.ok()) return ids.status().WithPrefix(query.name);
  return ids;
}

Status PreprocessingModel::CheckPromptBytes(const Tensor& prompt, size_t num_bytes) const {
  if (options_.max_prompt_bytes == 0 || num_bytes <= options_.max_prompt_bytes) return Status::Ok();
  return InvalidArgument(
             fmt::format(
                 "Prompt length ({} bytes) exceeds maximum input length (at most {} bytes). "
                 "Shorten {}, or rebuild the engine with a larger max_input_len and max_seq_len",
                 num_bytes, options_.max_prompt_bytes, prompt.name))
      .WithField(prompt.name)
      .WithReason(Reason::kPromptTooLong);
}

Result<std::vector<TokenId>> PreprocessingModel::EncodeMessages(const Tensor& messages) const {
  ASSIGN_OR_RETURN(const auto strings, messages.Strings());
  if (strings.size() != 1)
    return InvalidArgument(messages.name, fmt::format("got {} texts, must be one, the JSON of a "
                                                      "list of messages",
                                                      strings.size()));
  if (!options_.chat_template)
    return conversation::NoTemplate(options_.no_chat_template, "text_input");
  ASSIGN_OR_RETURN(
      const conversation::Prompt prompt,
      conversation::PromptOf(strings.front(), *options_.tokenizer, *options_.chat_template));
  RETURN_IF_ERROR(CheckPromptBytes(messages, prompt.text.size()));
  auto ids = options_.tokenizer->Encode(prompt.text, /*add_special_tokens=*/false, prompt.plain_at);
  if (!ids.ok()) return ids.status().WithPrefix(messages.name);
  return ids;
}

Result<contract::Words> PreprocessingModel::EncodeWords(const Tensor& words,
                                                        std::vector<std::string>* texts) const {
  ASSIGN_OR_RETURN(const auto strings, words.Strings());
  contract::Words encoded;
  for (const std::string_view word : strings) {
    if (texts != nullptr && !word.empty()) texts->emplace_back(word);
    auto ids = options_.tokenizer->Encode(word, /*add_special_tokens=*/false);
    if (!ids.ok()) return ids.status().WithPrefix(words.name);
    if (!word.empty() && !ids->empty()) encoded.push_back(std::move(*ids));
  }
  return encoded;
}

Result<std::vector<TokenId>> PreprocessingModel::EncodeBiasWord(std::string_view word,
                                                                int vocab_size) const {
  const std::string quoted = "'" + std::string(word.substr(0, kMaxQuotedBytes)) + "'";
  ASSIGN_OR_RETURN(auto ids, options_.tokenizer->Encode(word, /*add_special_tokens=*/false));
  const auto unk = options_.tokenizer->unk_id();
  if (ids.empty() || (unk && std::ranges::find(ids, *unk) != ids.end())) {
    return InvalidArgument(quoted + " is not in the tokenizer's vocabulary");
  }
  const TokenId largest = *std::ranges::max_element(ids);
  if (largest >= vocab_size) {
    return InvalidArgument(quoted + " has token id " + std::to_string(largest) +
                           ", the engine's vocabulary is [0, " + std::to_string(vocab_size) + ")");
  }
  return ids;
}

Result<std::vector<float>> PreprocessingModel::EncodeBias(const Tensor* words,
                                                          const Tensor* weights,
                                                          int vocab_size) const {
  std::vector<float> bias;
  if (words == nullptr || weights == nullptr) return bias;
  ASSIGN_OR_RETURN(const auto strings, words->Strings());
  ASSIGN_OR_RETURN(const auto values, contract::ReadFloats(*weights));
  if (strings.size() != values.size()) {
    return InvalidArgument(words->name + " and " + weights->name +
                           " must have the same dimension, got " + std::to_string(strings.size()) +
                           " words and " + std::to_string(values.size()) + " weights");
  }
  for (size_t i = 0; i < strings.size(); ++i) {
    if (!(values[i] <= std::numeric_limits<float>::max())) {
      return InvalidArgument(weights->name + "[" + std::to_string(i) + "]: got " +
                             std::to_string(values[i]) +
                             ", must be finite, or -inf to ban the word's tokens");
    }
    if (strings[i].empty()) continue;
    const auto ids = EncodeBiasWord(strings[i], vocab_size);
    if (!ids.ok()) return ids.status().WithPrefix(words->name + "[" + std::to_string(i) + "]");
    bias.resize(static_cast<size_t>(vocab_size));
    for (const TokenId id : *ids) bias[static_cast<size_t>(id)] += values[i];
  }
  return bias;
}

Status PreprocessingModel::CheckUnsupported(const Tensor& tensor) const {
  if (tensor.datatype != DataType::kBytes) {
    const bool asks_for_nothing =
        tensor.data.empty() || (AllZero(tensor) && tensor.datatype == DataType::kBool);
    return asks_for_nothing ? Status::Ok()
                            : Unimplemented(tensor.name + " is not supported; leave it out");
  }
  ASSIGN_OR_RETURN(const auto strings, tensor.Strings());
  for (const std::string_view text : strings) {
    if (!text.empty())
      return Unimplemented(tensor.name + " is not supported; leave it out or send it empty");
  }
  return Status::Ok();
}

TokenId PreprocessingModel::default_end_id() const {
  return options_.tokenizer->eos_id().value_or(kNoToken);
}

TokenId PreprocessingModel::default_pad_id() const {
  if (options_.pad_is_eos) return default_end_id();
  return options_.tokenizer->pad_id().value_or(default_end_id());
}

Status PreprocessingModel::EncodeRow(const std::vector<Tensor>& inputs, Batch& batch) const {
  TokenId end_id = default_end_id();
  TokenId pad_id = default_pad_id();
  uint64_t extra_id = 0;
  const Tensor* bias_words = nullptr;
  const Tensor* bias_weights = nullptr;
  for (const Tensor& input : inputs) {
    if (input.name == "QUERY" || input.name == "MESSAGES") {
      ASSIGN_OR_RETURN(auto ids,
                       input.name == "QUERY" ? EncodePrompt(input) : EncodeMessages(input));
      batch.lengths.push_back(static_cast<int32_t>(ids.size()));
      batch.ids.push_back(std::move(ids));
    } else if (input.name == "BAD_WORDS_DICT") {
      ASSIGN_OR_RETURN(batch.bad_words.emplace_back(), EncodeWords(input));
    } else if (input.name == "STOP_WORDS_DICT") {
      ASSIGN_OR_RETURN(batch.stop_words.emplace_back(), EncodeWords(input));
    } else if (input.name == "END_ID") {
      ASSIGN_OR_RETURN(end_id, contract::ReadInt32(input));
    } else if (input.name == "PAD_ID") {
      ASSIGN_OR_RETURN(pad_id, contract::ReadInt32(input));
    } else if (input.name == "PROMPT_TABLE_EXTRA_ID") {
      ASSIGN_OR_RETURN(extra_id, contract::ReadUint64(input));
    } else if (input.name == "EMBEDDING_BIAS_WORDS") {
      bias_words = &input;
    } else if (input.name == "EMBEDDING_BIAS_WEIGHTS") {
      bias_weights = &input;
    }
  }
  ASSIGN_OR_RETURN(batch.biases.emplace_back(),
                   EncodeBias(bias_words, bias_weights, options_.vocab_size));
  batch.extra_ids.push_back(extra_id);
  batch.end_ids.push_back(end_id);
  batch.pad_ids.push_back(pad_id);
  return Status::Ok();
}

Result<std::vector<Tensor>> PreprocessingModel::Run(const Request& request) const {
  const Tensor* query = request.FindInput("QUERY");
  const Tensor* messages = request.FindInput("MESSAGES");
  const Tensor* output_len = request.FindInput("REQUEST_OUTPUT_LEN");
  if (query != nullptr && messages != nullptr)
    return InvalidArgument("MESSAGES", "is given beside QUERY; send one of them");
  if (query == nullptr) query = messages;
  if (query == nullptr) return InvalidArgument("QUERY is not present in the request");
  if (output_len == nullptr) {
    return InvalidArgument("REQUEST_OUTPUT_LEN is not present in the request");
  }
  for (const Tensor& input : request.inputs) {
    const bool is_honoured = std::ranges::find(kHonoured, input.name) != kHonoured.end();
    if (!is_honoured) RETURN_IF_ERROR(CheckUnsupported(input));
  }
  const auto num_rows = query->shape.empty() ? 1 : query->shape.front();
  ASSIGN_OR_RETURN(const auto rows,
                   contract::SplitRows(request.inputs, static_cast<int>(num_rows)));
  ASSIGN_OR_RETURN(const MemoryCharge tokenizing, ChargeTokenizing(request, TextBytes(request)));
  Batch batch;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Status status = EncodeRow(rows[i], batch);
    if (!status.ok())
      return rows.size() > 1 ? status.WithPrefix("row " + std::to_string(i)) : status;
  }

  const std::vector<int32_t> ones(rows.size(), 1);
  std::vector<Tensor> all;
  MemoryCharge charge(request.memory);
  // Nobody reads the padding; 0 where the tokenizer has no token for it, as every engine has that.
  ASSIGN_OR_RETURN(all.emplace_back(),
                   PaddedRows("INPUT_ID", batch.ids, std::max(default_pad_id(), 0), charge));
  all.push_back(IdPerRow("REQUEST_INPUT_LEN", batch.lengths));
  all.push_back(IdPerRow("DECODER_INPUT_ID", batch.pad_ids));
  all.push_back(IdPerRow("REQUEST_DECODER_INPUT_LEN", ones));
  for (const auto& [name, words] : {std::pair("BAD_WORDS_IDS", &batch.bad_words),
                                    std::pair("STOP_WORDS_IDS", &batch.stop_words)}) {
    // None when the client sent no list at all.
    if (words->empty()) {
      all.push_back(Ids(name, {num_rows, 2, 0}, {}));
    } else {
      ASSIGN_OR_RETURN(all.emplace_back(), WordLists(name, *words, charge));
    }
  }
  all.push_back(*output_len);
  ASSIGN_OR_RETURN(all.emplace_back(), PaddedBiases("EMBEDDING_BIAS", batch.biases, charge));
  all.push_back(IdPerRow("OUT_END_ID", batch.end_ids));
  all.push_back(IdPerRow("OUT_PAD_ID", batch.pad_ids));
  if (request.FindInput("PROMPT_TABLE_EXTRA_ID") != nullptr) {
    const std::vector<int64_t> shape = all.front().shape;
    RETURN_IF_ERROR(charge.Resize(charge.bytes() +
                                  sizeof(uint64_t) * static_cast<size_t>(shape[0] * shape[1])));
    all.push_back(ExtraIds("OUT_PROMPT_TABLE_EXTRA_IDS", batch.ids, batch.extra_ids,
                           options_.vocab_size, shape[1]));
  }
  if (const Tensor* table = request.FindInput("PROMPT_EMBEDDING_TABLE")) {
    all.push_back(*table);
    all.back().name = "OUT_PROMPT_EMBEDDING_TABLE";
  }
  std::vector<Tensor> outputs;  // what this release's configuration declares, and the client wants
  for (const auto& declared : config().output()) {
    if (!request.WantsOutput(declared.name())) continue;
    for (Tensor& tensor : all) {
      if (tensor.name == declared.name()) outputs.push_back(std::move(tensor));
    }
  }
  KeepCharge(std::move(charge), outputs);
  return outputs;
}

}  // namespace inflight::serving
