// SPDX-License-Identifier: Apache-2.0
#include "builder/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::builder {
namespace {

constexpr int kChunk = 64;  // tokens of one forward pass
constexpr int kBlockSize = 64;

// How a model is stored and computed.
struct Form {
  const char* name = "float32";
  DType dtype = DType::kF32;
  std::optional<model::QuantAlgo> algo = model::QuantAlgo::kNone;  // none: as it is stored
  bool fp8_kv_cache = false;
  bool quantize_lm_head = false;
};

// One sequence at a time through a decoder, with the logits of every position.
class SequenceModel {
 public:
  static Result<std::unique_ptr<SequenceModel>> Create(const std::filesystem::path& dir,
                                                       const OpenOptions& options, Device& device) {
    auto out = std::unique_ptr<SequenceModel>(new SequenceModel(device));
    ASSIGN_OR_RETURN(out->engine_, Open(dir, device, options));
    const model::ModelConfig& config = out->engine_->config;
    const ops::ShapeClass shape = model::KernelShape(config);
    // Of a CPU's tables the first: a trial of them may end otherwise the next time.
    const auto choice =
        device.kind() == DeviceKind::kCpu ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
    ASSIGN_OR_RETURN(const ops::OpTable table, ops::FindOps(device, shape, {}, choice));
    out->ops_ = table.name;
    ASSIGN_OR_RETURN(out->stream_, ops::MakeStream(device, shape, kChunk, kChunk));
    ASSIGN_OR_RETURN(out->decoder_,
                     model::Decoder::Create(out->engine_, table, device, kChunk, kChunk));
    out->kv_ = {.dtype = model::KvDType(config),
                .num_layers = config.num_layers,
                .num_blocks = kMaxPiece / kBlockSize,
                .num_kv_heads = config.num_kv_heads,
                .block_size = kBlockSize,
                .head_dim = config.head_dim};
    ASSIGN_OR_RETURN(out->buffer_, Buffer::Allocate(device, "kv cache",
                                                    out->kv_.block_bytes() *
                                                        static_cast<size_t>(out->kv_.num_blocks) *
                                                        static_cast<size_t>(config.num_layers)));
    out->kv_.data = out->buffer_.data();
    out->inputs_.blocks.fill(0);
    std::iota(out->inputs_.blocks.begin(), out->inputs_.blocks.end(), 0);
    ASSIGN_OR_RETURN(out->device_inputs_, Buffer::Allocate(device, "inputs", sizeof(Inputs)));
    out->logits_.resize(static_cast<size_t>(kChunk) * static_cast<size_t>(config.vocab_size));
    return out;
  }

  const model::Engine& engine() const { return *engine_; }
  const std::string& ops() const { return ops_; }

  // Logits [tokens.size(), vocab_size] of tokens at `position` and on, whose predecessors were fed
  // before; valid until the next call.
  Result<const float*> Feed(std::span<const TokenId> tokens, int position) {
    const auto n = static_cast<int64_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      inputs_.ids[i] = tokens[i];
      inputs_.positions[i] = position + static_cast<int32_t>(i);
      inputs_.slots[i] = inputs_.positions[i];  // block b is block b
      inputs_.rows[i] = static_cast<int32_t>(i);
    }
    inputs_.cu_seqlens = {0, static_cast<int32_t>(n)};
    inputs_.seq_len = position + static_cast<int32_t>(n);
    RETURN_IF_ERROR(device_.Copy(device_inputs_.data(), &inputs_, sizeof(Inputs)));
    auto* const in = reinterpret_cast<Inputs*>(device_inputs_.data());
    const model::Batch batch = {
        .ids = {&in->ids, DType::kI32, {n}},
        .paged = {.num_rows = 1,
                  .num_tokens = static_cast<int>(n),
                  .cu_seqlens_q = {&in->cu_seqlens, DType::kI32, {2}},
                  .seq_lens_kv = {&in->seq_len, DType::kI32, {1}},
                  .positions = {&in->positions, DType::kI32, {n}},
                  .slot_mapping = {&in->slots, DType::kI64, {n}},
                  .block_tables = {&in->blocks, DType::kI32, {1, kv_.num_blocks}}},
        .logit_rows = {&in->rows, DType::kI32, {n}}};
    ASSIGN_OR_RETURN(const TensorView logits, decoder_->Forward(batch, kv_, *stream_));
    RETURN_IF_ERROR(stream_->Synchronize());
    RETURN_IF_ERROR(device_.Copy(logits_.data(), logits.data, logits.num_bytes()));
    return logits_.data();
  }

 private:
  explicit SequenceModel(Device& device) : device_(device) {}

  // One step's inputs, as ops::PagedBatch names them.
  struct Inputs {
    std::array<int64_t, kChunk> slots;
    std::array<int32_t, kChunk> ids, positions, rows;
    std::array<int32_t, kMaxPiece / kBlockSize> blocks;
    std::array<int32_t, 2> cu_seqlens;
    int32_t seq_len;
  };

  Device& device_;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<const model::Engine> engine_;
  std::string ops_;
  std::unique_ptr<model::Decoder> decoder_;
  Buffer buffer_;
  ops::KvCacheView kv_;
  Inputs inputs_{};
  Buffer device_inputs_;
  std::vector<float> logits_;  // [kChunk, vocab_size]
};

// -ln of the probability that softmax gives `token`.
double Surprise(std::span<const float> logits, TokenId token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(token)];
}

// Sums over the positions that were seen.
class Tally {
 public:
  void Add(std::span<const float> logits, std::span<const float> float32, TokenId next) {
    surprise_ += Surprise(logits, next);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double error = std::abs(double{logits[i]} - double{float32[i]});
      squares_ += error * error;
      largest_ = std::max(largest_, error);
    }
    num_logits_ += static_cast<double>(logits.size());
    same_best_ += std::ranges::max_element(logits) - logits.begin() ==
                  std::ranges::max_element(float32) - float32.begin();
    ++num_predictions_;
  }
  int64_t num_predictions() const { return num_predictions_; }
  Accuracy Finish(std::string name, uint64_t weight_bytes) const {
    const auto n = static_cast<double>(num_predictions_);
    return {.name = std::move(name),
            .weight_bytes = weight_bytes,
            .perplexity = std::exp(surprise_ / n),
            .logit_rms = std::sqrt(squares_ / num_logits_),
            .logit_max = largest_,
            .same_best = static_cast<double>(same_best_) / n};
  }

 private:
  double surprise_ = 0;
  double squares_ = 0;
  double largest_ = 0;
  double num_logits_ = 0;
  int64_t same_best_ = 0;
  int64_t num_predictions_ = 0;
};

// Feeds one piece to both models in step and tallies what `other` says of its tokens from
// `first_scored` on.
Status Score(SequenceModel& float32, SequenceModel& other, std::span<const TokenId> piece,
             size_t first_scored, Tally& tally) {
  const auto vocab = static_cast<size_t>(float32.engine().config.vocab_size);
  for (size_t first = 0; first + 1 < piece.size(); first += kChunk) {
    const size_t n = std::min<size_t>(kChunk, piece.size() - first);
    const auto chunk = piece.subspan(first, n);
    const auto position = static_cast<int>(first);
    ASSIGN_OR_RETURN(const float* const want, float32.Feed(chunk, position));
    const float* got = want;
    if (&other != &float32) {
      ASSIGN_OR_RETURN(got, other.Feed(chunk, position));
    }
    for (size_t i = 0; i < n; ++i) {
      const size_t next = first + i + 1;
      if (next >= first_scored && next < piece.size())
        tally.Add({got + i * vocab, vocab}, {want + i * vocab, vocab}, piece[next]);
    }
  }
  return Status::Ok();
}

Result<Tally> ScoreAll(SequenceModel& float32, SequenceModel& other,
                       std::span<const ScoredText> texts) {
  const auto longest =
      static_cast<size_t>(std::min(kMaxPiece, float32.engine().limits.max_seq_len));
  Tally tally;
  for (const ScoredText& text : texts) {
    const std::span<const TokenId> ids = text.ids;
    for (size_t first = 0; first + 1 < ids.size(); first += longest) {
      const auto piece = ids.subspan(first, std::min(longest, ids.size() - first));
      const size_t unscored = text.first_scored > first ? text.first_scored - first : 0;
      RETURN_IF_ERROR(Score(float32, other, piece, std::max<size_t>(unscored, 1), tally));
    }
  }
  if (tally.num_predictions() == 0)
    return InvalidArgument("the text holds no sequence of two tokens or more");
  return tally;
}

Status CheckTokens(std::span<const ScoredText> texts, int vocab_size) {
  for (size_t i = 0; i < texts.size(); ++i)
    for (size_t k = 0; k < texts[i].ids.size(); ++k)
      if (const TokenId id = texts[i].ids[k]; id < 0 || id >= vocab_size)
        return InvalidArgument(fmt::format(
            "text {}: token {}: got {}, the model's ids are 0 to {}; use the model's own tokenizer "
            "and texts without tokens that were added to it",
            i, k, id, vocab_size - 1));
  return Status::Ok();
}

}  // namespace

std::string AccuracyReport::ToString() const {
  const bool has_gpu = !gpu_ops.empty();
  std::string out = fmt::format(
      "accuracy over {} predictions in {} texts, computed by {}{}\n", num_predictions, num_texts,
      ops, has_gpu ? fmt::format(" (float32) and {} (the others)", gpu_ops) : "");
  for (const auto& [name, algo] :
       {std::pair{"int8", model::QuantAlgo::kW8A16}, std::pair{"int4", model::QuantAlgo::kW4A16}})
    out += fmt::format("{}: {}, a scale per output channel; {}the rest {}\n", name,
                       model::QuantAlgoName(algo), has_gpu ? "" : "activations int8 per token; ",
                       DTypeName(integer_dtype));
  if (has_gpu)
    out +=
        "fp8, fp8_f16: e4m3, a scale per output channel; activations e4m3 per token; the rest "
        "bfloat16, float16\n"
        "_kv: keys and values e4m3; _head: lm_head as the layers, where it is no embedding table\n";
  if (forms.back().name == "stored") out += "stored: weights as the files have them\n";
  out += "\n";
  out += "form        weights MB  perplexity   change   logit rms  logit max  same best\n";
  for (const Accuracy& form : forms)
    out += fmt::format("{:<11} {:>10.1f} {:>11.5f} {:>+7.3f} % {:>10.6f} {:>10.5f} {:>8.2f} %\n",
                       form.name, static_cast<double>(form.weight_bytes) * 1e-6, form.perplexity,
                       100 * (form.perplexity / forms.front().perplexity - 1), form.logit_rms,
                       form.logit_max, 100 * form.same_best);
  return out;
}

Result<AccuracyReport> MeasureAccuracy(const std::filesystem::path& dir, const OpenOptions& options,
                                       std::span<const ScoredText> texts, Device& host,
                                       Device* gpu) {
  using enum model::QuantAlgo;
  ASSIGN_OR_RETURN(const Description stored,
                   Describe(dir, {.dtype = options.dtype, .quant_algo = kNone, .limits = {}}));
  RETURN_IF_ERROR(CheckTokens(texts, stored.config.vocab_size));
  Device& device = gpu != nullptr ? *gpu : host;
  const auto open = [&](const Form& form, Device& on) {
    return SequenceModel::Create(dir,
                                 {.dtype = form.dtype,
                                  .quant_algo = form.algo,
                                  .fp8_kv_cache = form.fp8_kv_cache,
                                  .quantize_lm_head = form.quantize_lm_head,
                                  .limits = options.limits},
                                 on);
  };
  ASSIGN_OR_RETURN(const auto float32, open({.dtype = DType::kF32}, host));
  AccuracyReport report = {.ops = float32->ops(), .num_texts = static_cast<int64_t>(texts.size())};
  ASSIGN_OR_RETURN(const Tally base, ScoreAll(*float32, *float32, texts));
  report.num_predictions = base.num_predictions();
  report.forms.push_back(base.Finish("float32", float32->engine().weight_bytes));
  std::vector<Form> forms = {{"float16", DType::kF16}, {"bfloat16", DType::kBF16}};
  // The CPU's integer forms keep the rest in the model's own dtype, a GPU's in bfloat16.
  report.integer_dtype = gpu != nullptr ? DType::kBF16 : stored.config.dtype;
  forms.push_back({"int8", report.integer_dtype, kW8A16});
  forms.push_back({"int4", report.integer_dtype, kW4A16});
  if (gpu != nullptr) {
    forms.push_back({"fp8", DType::kBF16, kFp8PerChannelPerToken});
    forms.push_back({"fp8_f16", DType::kF16, kFp8PerChannelPerToken});
    forms.push_back({"bf16_kv", DType::kBF16, kNone, /*fp8_kv_cache=*/true});
    forms.push_back({"fp8_kv", DType::kBF16, kFp8PerChannelPerToken, /*fp8_kv_cache=*/true});
    forms.push_back({"fp8_head_kv", DType::kBF16, kFp8PerChannelPerToken, /*fp8_kv_cache=*/true,
                     /*quantize_lm_head=*/true});
  }
  std::erase_if(forms, [&](const Form& form) {
    model::ModelConfig config = stored.config;
    config.dtype = form.dtype;
    config.quant_algo = form.algo.value_or(kNone);
    config.fp8_kv_cache = form.fp8_kv_cache;
    config.quantize_lm_head = form.quantize_lm_head;
    return !model::Validate(config).ok();
  });
  ASSIGN_OR_RETURN(const Description kept,
                   Describe(dir, {.dtype = options.dtype, .target = device.kind()}));
  if (kept.config.quant_algo != kNone)
    forms.push_back({"stored", report.integer_dtype, /*algo=*/std::nullopt});
  for (const Form& form : forms) {
    ASSIGN_OR_RETURN(const auto other, open(form, device));
    ASSIGN_OR_RETURN(const Tally tally, ScoreAll(*float32, *other, texts));
    report.forms.push_back(tally.Finish(form.name, other->engine().weight_bytes));
    if (gpu != nullptr) report.gpu_ops = other->ops();
  }
  return report;
}

}  // namespace inflight::builder
