// SPDX-License-Identifier: Apache-2.0
#include "executor/local_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/log.h"
#include "decoding/beam_search.h"
#include "decoding/sampler.h"
#include "decoding/stop.h"
#include "decoding/top_log_probs.h"
#include "executor/cuda_backend.h"
#include "executor/kv_storage.h"
#include "executor/memory_plan.h"
#include "executor/step_inputs.h"
#include "model/decoder.h"
#include "ops/backend.h"

namespace inflight::executor {
namespace {

class CpuBackend : public Backend {
 public:
  CpuBackend(std::shared_ptr<const model::Engine> engine, Device& device, const MemoryPlan& plan)
      : engine_(std::move(engine)),
        stream_(device),
        sampler_(plan.max_batch_size, engine_->config.vocab_size, device.cpu_pool().num_threads()) {
    info_ = {.depth = 1,
             .max_slots = plan.max_batch_size,
             .max_batch_size = plan.max_batch_size,
             .max_num_tokens = plan.max_num_tokens,
             .max_beam_width = engine_->limits.max_beam_width,
             .max_seq_len = plan.max_seq_len,
             .max_input_len = plan.max_input_len,
             .vocab_size = engine_->config.vocab_size,
             .returns_logits = true,
             .kv_groups = {{.block_size = plan.block_size,
                            .num_blocks = plan.num_blocks,
                            .window = plan.window(),
                            .num_sinks = plan.window() == 0 ? 0 : plan.windows.num_sinks,
                            .num_host_blocks = plan.num_host_blocks}},
             .cpu_memory_bytes = static_cast<int64_t>(plan.total_bytes())};
    tokens_.resize(static_cast<size_t>(info_.max_slots));
    slots_.resize(static_cast<size_t>(info_.max_slots));
    yields_.resize(static_cast<size_t>(info_.max_batch_size));
    logit_tokens_.resize(static_cast<size_t>(info_.max_batch_size));
    result_.Reserve(info_.max_batch_size);
  }

  Status Load(const ops::OpTable& ops, const MemoryPlan& plan, Device& device,
              uint64_t mapped_bytes) {
    ASSIGN_OR_RETURN(mapped_weights_, device.ledger().Take("weights (mapped)", mapped_bytes));
    ASSIGN_OR_RETURN(decoder_, model::Decoder::Create(engine_, ops, device, plan.max_num_tokens,
                                                      plan.max_batch_size, plan.windows));
    ASSIGN_OR_RETURN(inputs_, StepInputs::Create(plan, info_.max_slots, device));
    ASSIGN_OR_RETURN(sampler_share_, device.ledger().Take("sampler", plan.sampler_bytes));
    ASSIGN_OR_RETURN(kv_, KvStorage::Create(KvShape(engine_->config, plan.block_size),
                                            plan.num_blocks + plan.num_host_blocks, device));
    return Status::Ok();
  }

  const BackendInfo& info() const override { return info_; }

  Status SetupSlot(const SlotSetup& setup) override {
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(setup.slot)].tokens;
    tokens.reserve(static_cast<size_t>(setup.max_seq_len));
    tokens.assign(setup.tokens.begin(), setup.tokens.end());
    Slot& slot = slots_[static_cast<size_t>(setup.slot)];
    slot.stop = {.end_ids = setup.request->end_ids,
                 .stop_words = setup.request->stop_words,
                 .num_prompt_tokens = setup.num_prompt_tokens,
                 .max_seq_len = setup.max_seq_len};
    slot.cum_log_prob = setup.cum_log_prob;
    const bool is_search = !setup.beam_slots.empty();  // which keeps its rows itself
    const OutputOptions& output = setup.request->output;
    for (const scheduler::SlotId beam : setup.beam_slots) {
      slots_[static_cast<size_t>(beam)].returns_generation_logits = false;
    }
    slot.returns_generation_logits = !is_search && output.return_generation_logits;
    slot.num_top_log_probs = output.num_top_log_probs;
    slot.context_logits_from = setup.context_logits_from.value_or(setup.num_prompt_tokens);
    slot.search.reset();
    const decoding::SamplingRule rule =
        decoding::MakeSamplingRule(*setup.request, setup.seed, setup.num_prompt_tokens);
    sampler_.Setup(setup.slot, rule, setup.tokens, setup.max_seq_len);
    for (const scheduler::SlotId beam : setup.beam_slots) {
      if (beam != setup.slot) sampler_.Setup(beam, rule, setup.tokens, setup.max_seq_len);
    }
    if (is_search) slot.search = StartSearch(setup);
    return Status::Ok();
  }

  std::vector<Beam> BestBeams(scheduler::SlotId slot, bool is_last) const override {
    return slots_[static_cast<size_t>(slot)].search->beams.Best(/*with_logits=*/is_last);
  }

  Result<Ticket> Launch(const StepPlan& plan) override {
    CHECK_EQ(outstanding_, 0);
    kv_.CopyBlocks(std::span(plan.copies).first(static_cast<size_t>(plan.num_copies)),
                   stream_.cpu_pool());
    inputs_->ApplyBlockUpdates(plan);
    ASSIGN_OR_RETURN(const model::Batch batch, inputs_->Prepare(plan, tokens_));
    ASSIGN_OR_RETURN(const TensorView logits, decoder_->Forward(batch, kv_.view(), stream_));
    result_.Clear(plan.num_rows);
    KeepGenerationLogits(plan, logits);
    Decode(plan, logits);
    RETURN_IF_ERROR(KeepContextLogits(plan));
    outstanding_ = plan.step_id;
    return plan.step_id;
  }

  Status ProvideLateInputs(Ticket, const LateInputs&) override {
    return Unimplemented("late inputs: no row of this backend has any");
  }

  bool Ready(Ticket) const override { return true; }

  Result<const StepResult*> Collect(Ticket ticket) override {
    CHECK_EQ(ticket, outstanding_);
    outstanding_ = 0;
    return &result_;
  }

 private:
  // A beam search; of the slot of its beam 0.
  struct Search {
    decoding::BeamSearch beams;
    std::vector<scheduler::SlotId> slots;  // [width]
    bool returns_generation_logits = false;
    int num_top_log_probs = 0;
    // Of the step.
    std::vector<decoding::BeamCandidate> candidates{};
    std::vector<std::shared_ptr<const decoding::BeamRow>> rows{};  // of live beams; or empty

    bool returns_rows() const { return returns_generation_logits || num_top_log_probs > 0; }
  };
  struct Slot {
    decoding::StopCriteria stop;
    float cum_log_prob = 0;
    std::unique_ptr<Search> search;
    bool returns_generation_logits = false;
    int num_top_log_probs = 0;
    int context_logits_from = 0;  // of prompt tokens from here on
  };
  // One row of logits, and what becomes of it.
  struct Yield {
    int row = 0;
    Search* search = nullptr;  // null: a token is drawn
    int beam = 0;
    decoding::SampledToken token{};
    std::vector<TopLogProb> top_log_probs{};  // of the token
    std::vector<decoding::BeamCandidate> continuations{};
    std::shared_ptr<decoding::BeamRow> beam_row{};
  };

  std::unique_ptr<Search> StartSearch(const SlotSetup& setup) {
    const auto beam_rule =
        decoding::MakeBeamRule(*setup.request, setup.num_prompt_tokens, setup.max_seq_len);
    for (const scheduler::SlotId slot : setup.beam_slots) {
      tokens_[static_cast<size_t>(slot)].tokens.reserve(static_cast<size_t>(setup.max_seq_len));
    }
    return std::make_unique<Search>(
        Search{.beams = decoding::BeamSearch(beam_rule, setup.tokens),
               .slots = {setup.beam_slots.begin(), setup.beam_slots.end()},
               .returns_generation_logits = setup.request->output.return_generation_logits,
               .num_top_log_probs = setup.request->output.num_top_log_probs});
  }

  // Draws one token for each row that yields, appends it to its slot, and judges whether the
  // sequence ends. Rows of a beam search give their best continuations, which it then chooses from.
  void Decode(const StepPlan& plan, const TensorView& logits) {
    FindYields(plan);
    const int64_t vocab_size = info_.vocab_size;
    stream_.cpu_pool().ParallelFor(num_yields_, [&](int64_t i) {
      Yield& yield = yields_[static_cast<size_t>(i)];
      const scheduler::SlotId slot = plan.rows[static_cast<size_t>(yield.row)].slot;
      const std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot)].tokens;
      float* row = logits.as<float>() + i * vocab_size;
      const std::span<const float> values(row, static_cast<size_t>(vocab_size));
      if (yield.search == nullptr) {
        yield.token = sampler_.Sample(slot, tokens, row);
        const int count = slots_[static_cast<size_t>(slot)].num_top_log_probs;
        if (count > 0) yield.top_log_probs = decoding::TopLogProbs(values, count);
        return;
      }
      StartBeamRow(values, &yield);
      sampler_.Process(slot, tokens, row);
      Continue(values, &yield);
    });

    int next = 0;
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      if (row.yields != 0) {
        Yield& yield = yields_[static_cast<size_t>(next++)];
        if (yield.search == nullptr) {
          Append(r, row.slot, yield.token);
          if (!yield.top_log_probs.empty()) {
            LogitsOf(plan, r).top_log_probs = std::exchange(yield.top_log_probs, {});
          }
        } else if (yield.beam == 0) {
          Advance(r, yield.search, std::span(yields_).subspan(static_cast<size_t>(next - 1)));
        }
      }
      result_.token_begin[static_cast<size_t>(r) + 1] =
          static_cast<int32_t>(result_.token_ids.size());
    }
  }

  // The rows of a search follow each other, the one of beam 0 first.
  void FindYields(const StepPlan& plan) {
    num_yields_ = 0;
    Search* search = nullptr;
    int beam = 0;
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      if (row.yields == 0) continue;
      const bool is_next_beam = search != nullptr && row.is_prefill == 0 &&
                                ++beam < static_cast<int>(search->slots.size());
      if (!is_next_beam) {
        search = slots_[static_cast<size_t>(row.slot)].search.get();
        beam = 0;
      }
      Yield& yield = yields_[static_cast<size_t>(num_yields_++)];
      yield.row = r;
      yield.search = search;
      yield.beam = beam;
      if (row.is_prefill != 0) search = nullptr;
    }
  }

  static bool Lives(const Yield& yield) {
    return yield.beam < std::ssize(yield.search->beams.cum_log_probs());
  }

  // Before decoding changes the logits.
  static void StartBeamRow(std::span<const float> logits, Yield* yield) {
    yield->beam_row.reset();
    if (!yield->search->returns_rows() || !Lives(*yield)) return;
    yield->beam_row = std::make_shared<decoding::BeamRow>();
    if (yield->search->returns_generation_logits) {
      yield->beam_row->logits.assign(logits.begin(), logits.end());
    }
  }

  static void Continue(std::span<const float> logits, Yield* yield) {
    const decoding::BeamSearch& beams = yield->search->beams;
    const auto beam = static_cast<size_t>(yield->beam);
    yield->continuations.clear();
    if (!Lives(*yield)) return;
    if (const int count = yield->search->num_top_log_probs; count > 0) {
      yield->beam_row->top_log_probs = decoding::TopLogProbs(logits, count);
    }
    decoding::BestContinuations(logits, yield->beam, beams.cum_log_probs()[beam],
                                beams.rule().num_candidates(), &yield->continuations);
  }

  // One step of a search whose rows begin with row `r`, and `yields` with theirs.
  void Advance(int r, Search* search, std::span<Yield> yields) {
    search->candidates.clear();
    search->rows.clear();
    for (size_t b = 0; b < search->beams.cum_log_probs().size(); ++b) {
      const auto& continuations = yields[b].continuations;
      if (search->returns_rows()) search->rows.push_back(std::exchange(yields[b].beam_row, {}));
      search->candidates.insert(search->candidates.end(), continuations.begin(),
                                continuations.end());
    }
    const auto num_tokens = static_cast<int>(
        tokens_[static_cast<size_t>(search->slots[0])].tokens.size());  // of which K and V exist
    const bool is_first = search->beams.num_generated() == 0;
    search->beams.Advance(&search->candidates, search->rows);
    if (search->beams.is_done()) {
      result_.finish_reasons[static_cast<size_t>(r)] = FinishReason::kLength;
      return;
    }
    const auto parents = search->beams.parents();
    if (!is_first) {
      std::copy(parents.begin(), parents.end(), result_.parents.begin() + r);
    }
    copies_.clear();
    inputs_->ReorderBeams(search->slots, parents, num_tokens, &copies_);
    kv_.Copy(copies_, stream_.cpu_pool());
    ReorderTokens(*search);
  }

  // Each beam's slot gets the tokens of its parent and the one that it goes on with.
  void ReorderTokens(const Search& search) {
    const auto parents = search.beams.parents();
    std::vector<std::vector<TokenId>> before(search.slots.size());  // of those that others need
    for (size_t j = 0; j < search.slots.size(); ++j) {
      const auto parent = static_cast<size_t>(parents[j]);
      if (parent == j || !before[parent].empty()) continue;
      before[parent] = tokens_[static_cast<size_t>(search.slots[parent])].tokens;
    }
    for (size_t j = 0; j < search.slots.size(); ++j) {
      const scheduler::SlotId slot = search.slots[j];
      std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot)].tokens;
      const auto parent = static_cast<size_t>(parents[j]);
      const TokenId token = search.beams.tokens()[j];
      if (parent == j) {
        tokens.push_back(token);
        sampler_.Append(slot, token);
        continue;
      }
      tokens.assign(before[parent].begin(), before[parent].end());
      tokens.push_back(token);
      sampler_.Restart(slot, tokens, search.beams.rule().stop.max_seq_len);
    }
  }

  void Append(int r, scheduler::SlotId slot_id, const decoding::SampledToken& token) {
    Slot& slot = slots_[static_cast<size_t>(slot_id)];
    std::vector<TokenId>& tokens = tokens_[static_cast<size_t>(slot_id)].tokens;
    tokens.push_back(token.id);
    sampler_.Append(slot_id, token.id);
    slot.cum_log_prob += token.log_prob_all;
    result_.token_ids.push_back(token.id);
    result_.log_probs.push_back(token.log_prob);
    result_.cum_log_probs[static_cast<size_t>(r)] = slot.cum_log_prob;
    result_.finish_reasons[static_cast<size_t>(r)] = decoding::CheckStop(slot.stop, tokens);
  }

  // Before decoding changes them.
  void KeepGenerationLogits(const StepPlan& plan, const TensorView& logits) {
    const float* next = logits.as<float>();
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      if (row.yields == 0) continue;
      if (slots_[static_cast<size_t>(row.slot)].returns_generation_logits) {
        Append(next, 1, LogitsOf(plan, r).generation);
      }
      next += info_.vocab_size;
    }
  }

  // Those of prompt tokens that this step computed. Overwrites the step's other logits.
  Status KeepContextLogits(const StepPlan& plan) {
    int first_token = 0;  // of the row, in the packed batch
    for (int r = 0; r < plan.num_rows; ++r) {
      const scheduler::PlanRow& row = plan.rows[static_cast<size_t>(r)];
      const Slot& slot = slots_[static_cast<size_t>(row.slot)];
      const int begin = std::max(row.first_position, slot.context_logits_from);
      const int end =
          std::min(row.first_position + row.num_query_tokens, slot.stop.num_prompt_tokens);
      if (row.is_prefill != 0 && begin < end) {
        RETURN_IF_ERROR(Compute(first_token + begin - row.first_position, end - begin,
                                LogitsOf(plan, r).context));
      }
      first_token += row.num_query_tokens;
    }
    return Status::Ok();
  }

  // Logits of tokens [first, first + num_tokens) of the packed batch, as many at a time as the
  // decoder has room for.
  Status Compute(int first, int num_tokens, LogitsRows& out) {
    out.values.reserve(static_cast<size_t>(num_tokens) * static_cast<size_t>(info_.vocab_size));
    while (num_tokens > 0) {
      const int n = std::min(num_tokens, info_.max_batch_size);
      std::iota(logit_tokens_.begin(), logit_tokens_.begin() + n, first);
      ASSIGN_OR_RETURN(const TensorView logits,
                       decoder_->Logits({logit_tokens_.data(), DType::kI32, {n}}, stream_));
      Append(logits.as<float>(), n, out);
      first += n;
      num_tokens -= n;
    }
    return Status::Ok();
  }

  void Append(const float* logits, int num_rows, LogitsRows& out) const {
    out.vocab_size = info_.vocab_size;
    out.num_rows += num_rows;
    out.values.insert(out.values.end(), logits, logits + int64_t{num_rows} * info_.vocab_size);
  }

  RowLogits& LogitsOf(const StepPlan& plan, int r) {
    result_.logits.resize(static_cast<size_t>(plan.num_rows));
    std::shared_ptr<RowLogits>& logits = result_.logits[static_cast<size_t>(r)];
    if (logits == nullptr) logits = std::make_shared<RowLogits>();
    return *logits;
  }

  std::shared_ptr<const model::Engine> engine_;
  MemoryShare mapped_weights_;
  Stream stream_;
  BackendInfo info_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<StepInputs> inputs_;
  KvStorage kv_;
  decoding::Sampler sampler_;
  MemoryShare sampler_share_;
  std::vector<SlotTokens> tokens_;     // [max_slots]
  std::vector<Slot> slots_;            // [max_slots]
  std::vector<int32_t> logit_tokens_;  // [max_batch_size]
  std::vector<Yield> yields_;          // [max_batch_size], the first num_yields_ are the step's
  int num_yields_ = 0;
  std::vector<kv_cache::BlockCopy> copies_;
  StepResult result_;
  Ticket outstanding_ = 0;
};

}  // namespace

Status CheckDevice(const ExecutorOptions& options, DeviceKind device) {
  if (!options.deterministic || device == DeviceKind::kCpu) return Status::Ok();
  return Unimplemented(
      "deterministic: not supported on a GPU, where kernels are chosen by the number of rows in a "
      "step and attention is split by the batch; use --device cpu, or leave it out");
}

Result<std::unique_ptr<Backend>> CreateLocalBackend(std::shared_ptr<const model::Engine> engine,
                                                    Device& device, const ExecutorOptions& options,
                                                    const std::string& force_ops) {
  RETURN_IF_ERROR(CheckDevice(options, device.kind()));
  const bool is_cuda = device.kind() == DeviceKind::kCuda;
  uint64_t mapped_bytes = 0;  // of host memory
  if (!is_cuda)
    for (const MappedFile& mapping : engine->mappings) mapped_bytes += mapping.bytes().size();
  const auto sizing = device.ledger().LockSizing();
  const uint64_t free = device.FreeBytes();
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   PlanMemory(engine->config, engine->limits, device.kind(), engine->weight_bytes,
                              /*weights_are_taken=*/true, options,
                              free > mapped_bytes ? free - mapped_bytes : 0));
  if (plan.engine_max_seq_len > 0) {
    logging::Warning(
        "KV cache holds less than one sequence of full length: max_seq_len lowered (free memory, "
        "raise kv_cache_free_memory_fraction or max_kv_tokens)",
        {{"engine_max_seq_len", plan.engine_max_seq_len}, {"max_seq_len", plan.max_seq_len}});
  }
  if (plan.max_kv_tokens_exceed_memory) {
    logging::Warning(
        "both max_kv_tokens and kv_cache_free_memory_fraction are set. The smaller value will be "
        "used.",
        {{"max_kv_tokens", *options.max_kv_tokens},
         {"kv_cache_free_memory_fraction", options.kv_cache_free_memory_fraction},
         {"kv_tokens", plan.kv_tokens()}});
  }
  const model::ModelConfig& config = engine->config;
  const auto choice = options.deterministic ? ops::OpChoice::kFixed : ops::OpChoice::kFastest;
  ASSIGN_OR_RETURN(const ops::OpTable ops,
                   ops::FindOps(device, model::KernelShape(config), force_ops, choice));
  if (const std::string_view note = model::QuantizationNote(config); !note.empty())
    logging::Info("weights are quantised",
                  {{"quant_algo", model::QuantAlgoName(config.quant_algo)}, {"computed", note}});
  std::unique_ptr<Backend> backend;
  if (is_cuda) {
    ASSIGN_OR_RETURN(backend, CreateCudaBackend(std::move(engine), device, plan, ops));
  } else {
    auto cpu = std::make_unique<CpuBackend>(std::move(engine), device, plan);
    RETURN_IF_ERROR(cpu->Load(ops, plan, device, mapped_bytes));
    backend = std::move(cpu);
  }
  logging::Info("memory planned", {{"device", device.name()},
                                   {"weight_bytes", plan.weight_bytes},
                                   {"workspace_bytes", plan.workspace_bytes},
                                   {"kernel_bytes", plan.kernel_bytes},
                                   {"graph_bytes", plan.graph_bytes},
                                   {"step_input_bytes", plan.step_input_bytes},
                                   {"sampler_bytes", plan.sampler_bytes},
                                   {"kv_bytes", plan.kv_bytes()},
                                   {"kv_blocks", plan.num_blocks},
                                   {"kv_tokens", plan.kv_tokens()},
                                   {"kv_host_blocks", plan.num_host_blocks},
                                   {"attention_window", plan.window()},
                                   {"full_length_sequences", plan.full_length_sequences()}});
  return backend;
}

}  // namespace inflight::executor
