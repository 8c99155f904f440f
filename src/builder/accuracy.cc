// SPDX-License-Identifier: Apache-2.0
#include "builder/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::builder {
namespace {

constexpr int kChunk = 64;  // tokens of one forward pass
constexpr int kBlockSize = 64;

// One sequence at a time through a decoder, with the logits of every position.
class SequenceModel {
 public:
  static Result<std::unique_ptr<SequenceModel>> Create(const std::filesystem::path& dir,
                                                       const OpenOptions& options, Device& device) {
    auto out = std::unique_ptr<SequenceModel>(new SequenceModel(device));
    ASSIGN_OR_RETURN(out->engine_, Open(dir, device, options));
    const model::ModelConfig& config = out->engine_->config;
    ASSIGN_OR_RETURN(const ops::OpTable table,
                     ops::FindOps(device, model::KernelShape(config)));
    out->ops_ = table.name;
    ASSIGN_OR_RETURN(out->decoder_,
                     model::Decoder::Create(out->engine_, table, device, kChunk, kChunk));
    out->kv_ = {.dtype = config.dtype,
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
    out->blocks_.resize(static_cast<size_t>(out->kv_.num_blocks));
    std::iota(out->blocks_.begin(), out->blocks_.end(), 0);
    return out;
  }

  const model::Engine& engine() const { return *engine_; }
  const std::string& ops() const { return ops_; }

  // Logits [tokens.size(), vocab_size] of tokens at `position` and on, whose predecessors were fed
  // before; valid until the next call.
  Result<const float*> Feed(std::span<const TokenId> tokens, int position) {
    const auto n = static_cast<int64_t>(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      ids_[i] = tokens[i];
      positions_[i] = position + static_cast<int32_t>(i);
      slots_[i] = positions_[i];  // block b is block b
      rows_[i] = static_cast<int32_t>(i);
    }
    cu_seqlens_ = {0, static_cast<int32_t>(n)};
    seq_len_ = position + static_cast<int32_t>(n);
    const model::Batch batch = {
        .ids = {ids_.data(), DType::kI32, {n}},
        .paged = {.num_rows = 1,
                  .num_tokens = static_cast<int>(n),
                  .cu_seqlens_q = {cu_seqlens_.data(), DType::kI32, {2}},
                  .seq_lens_kv = {&seq_len_, DType::kI32, {1}},
                  .positions = {positions_.data(), DType::kI32, {n}},
                  .slot_mapping = {slots_.data(), DType::kI64, {n}},
                  .block_tables = {blocks_.data(), DType::kI32, {1, kv_.num_blocks}}},
        .logit_rows = {rows_.data(), DType::kI32, {n}}};
    ASSIGN_OR_RETURN(const TensorView logits, decoder_->Forward(batch, kv_, stream_));
    return logits.as<const float>();
  }

 private:
  explicit SequenceModel(Device& device) : stream_(device) {}

  Stream stream_;
  std::shared_ptr<const model::Engine> engine_;
  std::string ops_;
  std::unique_ptr<model::Decoder> decoder_;
  Buffer buffer_;
  ops::KvCacheView kv_;
  std::vector<int32_t> blocks_;
  std::array<int32_t, kChunk> ids_{}, positions_{}, rows_{};
  std::array<int64_t, kChunk> slots_{};
  std::array<int32_t, 2> cu_seqlens_{};
  int32_t seq_len_ = 0;
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
  std::string out = fmt::format("accuracy over {} predictions in {} texts, computed by {}\n",
                                num_predictions, num_texts, ops);
  out += fmt::format(
      "int8: {}, a scale per output channel; activations int8 per token; the rest {}\n\n",
      model::QuantAlgoName(model::QuantAlgo::kW8A16), DTypeName(int8_dtype));
  out += "form      weights MB  perplexity   change   logit rms  logit max  same best\n";
  for (const Accuracy& form : forms)
    out += fmt::format("{:<9} {:>10.1f} {:>11.5f} {:>+7.3f} % {:>10.6f} {:>10.5f} {:>8.2f} %\n",
                       form.name, static_cast<double>(form.weight_bytes) * 1e-6, form.perplexity,
                       100 * (form.perplexity / forms.front().perplexity - 1), form.logit_rms,
                       form.logit_max, 100 * form.same_best);
  return out;
}

Result<AccuracyReport> MeasureAccuracy(const std::filesystem::path& dir, const OpenOptions& options,
                                       std::span<const ScoredText> texts, Device& device) {
  using enum model::QuantAlgo;
  ASSIGN_OR_RETURN(const Description stored,
                   Describe(dir, {.dtype = options.dtype, .quant_algo = kNone, .limits = {}}));
  RETURN_IF_ERROR(CheckTokens(texts, stored.config.vocab_size));
  const auto open = [&](DType dtype, model::QuantAlgo algo) {
    return SequenceModel::Create(
        dir, {.dtype = dtype, .quant_algo = algo, .limits = options.limits}, device);
  };
  ASSIGN_OR_RETURN(const auto float32, open(DType::kF32, kNone));
  AccuracyReport report = {.ops = float32->ops(),
                           .int8_dtype = stored.config.dtype,
                           .num_texts = static_cast<int64_t>(texts.size())};
  ASSIGN_OR_RETURN(const Tally base, ScoreAll(*float32, *float32, texts));
  report.num_predictions = base.num_predictions();
  report.forms.push_back(base.Finish("float32", float32->engine().weight_bytes));
  for (const auto& [name, dtype, algo] : {std::tuple{"float16", DType::kF16, kNone},
                                          {"bfloat16", DType::kBF16, kNone},
                                          {"int8", stored.config.dtype, kW8A16}}) {
    ASSIGN_OR_RETURN(const auto other, open(dtype, algo));
    ASSIGN_OR_RETURN(const Tally tally, ScoreAll(*float32, *other, texts));
    report.forms.push_back(tally.Finish(name, other->engine().weight_bytes));
  }
  return report;
}

}  // namespace inflight::builder
