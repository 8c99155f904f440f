// SPDX-License-Identifier: Apache-2.0
#include "serving/llm/llm_model.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/status_macros.h"
#include "contract/llm_response.h"
#include "contract/rows.h"
#include "contract/tensor_values.h"
#include "serving/configuration/model_config.h"
#include "serving/core/cache_salt.h"
#include "serving/core/prompt_task.h"
#include "serving/llm/answer_text.h"
#include "serving/llm/llm_call.h"
#include "serving/llm/row_batch.h"

namespace inflight::serving {
namespace {

// A request to the model itself: ids out, and the prompt's too unless it is kept out.
class TokenCall final : public LlmCall {
 public:
  using LlmCall::LlmCall;

  std::vector<TokenId> prompt;  // empty = excluded, or streaming
  int prompt_len = 0;
  TokenId pad_id = -1;
  bool with_sequence_index = false;

 protected:
  bool Fill(inflight::Response& response, Response& out) override {
    const contract::LlmResponseOptions options = {
        .prompt = prompt,
        .pad_id = pad_id,
        .return_log_probs = returns.log_probs,
        .with_dummies = llm_.with_dummies(),
        .num_dummy_log_probs = streaming ? 1 : prompt_len,
        .batch_index = BatchIndex(),
        .with_sequence_index = with_sequence_index,
        .return_generation_logits = returns.generation_logits,
        .num_top_log_probs = returns.num_top_log_probs,
        .context_logits_type = llm_.logits_types().context,
        .generation_logits_type = llm_.logits_types().generation,
        .facts = Facts()};
    const auto& requested = request_.requested_outputs;
    out.outputs = contract::MakeLlmOutputs(response, options,
                                           requested.empty() ? llm_.declared_outputs() : requested);
    return true;
  }

 private:
  std::optional<int> BatchIndex() const {
    if (!request_.row && !llm_.always_sends_batch_index()) return std::nullopt;
    return RowIndex();
  }
};

// Of prompt and answer.
int64_t MostTokens(const inflight::Request& request) {
  const SamplingParams& sampling = request.sampling;
  const int64_t num_sequences =
      std::max(sampling.beam_width, sampling.num_return_sequences.value_or(1));
  return static_cast<int64_t>(request.input_ids.size()) + num_sequences * request.max_tokens;
}

// Up to its end, beside its tokens: its sequences, a bias of the whole vocabulary, and of each
// sequence the logits and likeliest tokens that wait for its response. What no response may have
// the executor refuses.
size_t BytesHeld(const inflight::Request& request, const ExecutorLimits& limits) {
  constexpr size_t kBytesPerSequence = 1536;  // beside the first: records, queues, its text
  constexpr size_t kMostBytesOfResponse = size_t{1} << 30;
  const OutputOptions& output = request.output;
  const SamplingParams& sampling = request.sampling;
  const auto width = static_cast<size_t>(std::max(1, sampling.beam_width));
  const bool has_beams = width > 1;
  const size_t num_sequences =
      has_beams ? 1 : static_cast<size_t>(std::max(1, sampling.num_return_sequences.value_or(1)));
  const size_t num_prompt = request.input_ids.size();
  const auto most = static_cast<size_t>(std::max(0, limits.max_seq_len));
  const size_t num_new = std::min(static_cast<size_t>(std::max(0, request.max_tokens)),
                                  most - std::min(most, num_prompt));
  const auto of_row = static_cast<size_t>(limits.vocab_size) * sizeof(float);
  const bool keeps_tokens = !request.streaming || has_beams;  // until the sequence ends
  size_t of_tokens = 0;
  if (keeps_tokens && output.return_generation_logits) of_tokens += of_row;
  if (keeps_tokens && output.num_top_log_probs > 0)
    of_tokens += static_cast<size_t>(output.num_top_log_probs) * sizeof(TopLogProb);
  size_t bytes = (num_sequences - 1) * kBytesPerSequence;
  bytes += num_sequences * std::min(num_new * width * of_tokens, kMostBytesOfResponse);
  if (output.return_context_logits) bytes += std::min(num_prompt * of_row, kMostBytesOfResponse);
  if (request.embedding_bias != nullptr) bytes += request.embedding_bias->size() * sizeof(float);
  return bytes;
}

// By its client's limits; none of a client that has none.
std::optional<int64_t> TimeoutOf(const Request& request) {
  if (request.client == nullptr) return std::nullopt;
  const ClientLimits& limits = request.client->limits;
  if (limits.default_timeout_ms == 0 && limits.max_timeout_ms == 0) return std::nullopt;
  constexpr uint64_t kUsPerMs = 1000;
  const auto asked_ms = static_cast<int64_t>(request.timeout_us / kUsPerMs);
  int64_t timeout_ms =
      request.timeout_us > 0 ? std::max<int64_t>(1, asked_ms) : limits.default_timeout_ms;
  if (limits.max_timeout_ms > 0)
    timeout_ms =
        timeout_ms > 0 ? std::min(timeout_ms, limits.max_timeout_ms) : limits.max_timeout_ms;
  return timeout_ms;
}

// Among other clients; those without a key are one together.
void SetTurns(const std::shared_ptr<const Client>& client, inflight::Request& request) {
  if (client == nullptr) return;
  for (size_t i = 0; i < sizeof(request.client_id); ++i)
    request.client_id = request.client_id << 8 | client->identity[i];
  request.share = static_cast<float>(client->limits.share);
}

// Whether a batched request is a stop: all of its rows, or none.
Result<bool> IsBatchStop(const Request& request, int num_rows) {
  const Tensor* stop = request.FindInput("stop");
  if (stop == nullptr) return false;
  ASSIGN_OR_RETURN(const auto rows, contract::SplitRows({stop, 1}, num_rows));
  int num_set = 0;
  for (const auto& row : rows) {
    ASSIGN_OR_RETURN(const bool is_set, contract::ReadBool(row.front()));
    num_set += is_set ? 1 : 0;
  }
  if (num_set == 0 || num_set == num_rows) return num_set != 0;
  return InvalidArgument(stop->name + ": got true for " + std::to_string(num_set) + " of " +
                         std::to_string(num_rows) +
                         " rows, must be the same for all (a stop ends all rows of its id)");
}

// The name of one of the server's tables: a text, or a number as task ids are. None: "" too.
Result<std::optional<std::string>> PromptTaskOf(const Request& request) {
  const auto found = request.parameters.find(kPromptTask);
  if (found == request.parameters.end()) return std::optional<std::string>();
  if (const auto* text = std::get_if<std::string>(&found->second))
    return text->empty() ? std::optional<std::string>() : std::optional(*text);
  if (const auto* number = std::get_if<int64_t>(&found->second); number != nullptr && *number >= 0)
    return std::optional(std::to_string(*number));
  if (const auto* number = std::get_if<uint64_t>(&found->second))
    return std::optional(std::to_string(*number));
  return InvalidArgument(kPromptTask,
                         "the parameter has another type, must be a string or a number");
}

}  // namespace

void StepRecorder::OnStep(int64_t step_ns, int num_rows, int /*num_tokens*/) {
  if (ModelStatistics* statistics = statistics_.load(std::memory_order_acquire)) {
    statistics->ObserveStep(step_ns, num_rows);
  }
}

void ActiveRequests::Add(const LlmCall& call, RequestId id) {
  if (call.request().id.empty()) return;
  std::lock_guard lock(mutex_);
  if (call.finished) return;  // its final response overtook us
  const auto [begin, end] = entries_.equal_range(call.request().id);
  const auto known =
      std::find_if(begin, end, [&](const auto& entry) { return entry.second.call == &call; });
  if (known != end) {
    known->second.id = id;
  } else {
    entries_.emplace(call.request().id, Entry{&call, id});
  }
}

void ActiveRequests::Remove(const LlmCall& call) {
  if (call.request().id.empty()) return;
  std::lock_guard lock(mutex_);
  call.finished = true;
  auto [it, end] = entries_.equal_range(call.request().id);
  while (it != end) it = it->second.call == &call ? entries_.erase(it) : std::next(it);
}

std::vector<RequestId> ActiveRequests::Stop(const std::string& client_id,
                                            const Identity& identity) const {
  std::lock_guard lock(mutex_);
  std::vector<RequestId> ids;
  auto [begin, end] = entries_.equal_range(client_id);
  for (auto it = begin; it != end; ++it) {
    const auto& [call, id] = it->second;
    if (call->request().identity() != identity) continue;
    call->stopped = true;
    if (id != 0) ids.push_back(id);
  }
  return ids;
}

LlmModel::LlmModel(::inference::ModelConfig config, std::string version, LlmBackend backend,
                   const contract::LlmRequestDefaults& defaults, const LogitsTypes& logits_types,
                   Clock& clock)
    : Model(std::move(config), std::move(version)),
      backend_(std::move(backend)),
      defaults_(defaults),
      logits_types_(logits_types),
      // num_return_sequences came with 0.14, which sends an output only when it was asked for.
      with_dummies_(!defaults.own && !HasInput(this->config(), "num_return_sequences")),
      clock_(clock),
      iterations_(backend_.executor, ProfileOf(this->config()), backend_.iterations, clock) {
  for (const auto& output : this->config().output()) declared_outputs_.push_back(output.name());
  statistics().SetPendingSource([executor = std::weak_ptr(backend_.executor)] {
    const auto alive = executor.lock();
    return alive ? static_cast<uint64_t>(alive->stats().num_queued_requests) : uint64_t{0};
  });
  if (!backend_.steps) return;
  statistics().CountStepsAsBatches(backend_.executor->limits().max_batch_size);
  backend_.steps->Bind(&statistics());
}

LlmModel::~LlmModel() {
  backend_.executor->Shutdown(/*drain_ms=*/0);
  if (backend_.steps) backend_.steps->Bind(nullptr);
}

std::string_view LlmModel::why_not_ready() const {
  return is_sleeping() ? "it sleeps; POST /wake_up wakes it" : "";
}

void LlmModel::EndSleep() {
  if (is_sleeping()) backend_.executor->Shutdown(/*drain_ms=*/0);
}

bool LlmModel::OnlyStops(const Request& request) const {
  const Tensor* stop = request.FindInput("stop");
  return stop != nullptr && !stop->data.empty() &&
         std::all_of(stop->data.begin(), stop->data.end(),
                     [](std::byte b) { return b != std::byte{0}; });
}

void LlmModel::Infer(Request request, ResponseHandler handler) {
  const int64_t started_ns = clock_.NowNs();
  if (request.received_ns == 0) request.received_ns = started_ns;
  if (NumRows(*this, request) > 1) return InferBatch(std::move(request), std::move(handler));
  std::vector<contract::NamedInput> inputs;
  inputs.reserve(request.inputs.size());
  for (const Tensor& input : request.inputs) inputs.push_back({input.name, &input});
  auto parsed = contract::ParseLlmRequest(inputs, defaults_, request.memory);
  if (parsed.ok() && parsed->is_stop) return Stop(request, handler);
  request.trace.AddTensors("TENSOR_BACKEND_INPUT", request.inputs);
  const bool has_to_read = parsed.ok() && backend_.text_pool != nullptr && HasToRead(request);

  auto call = std::make_shared<TokenCall>(*this, *this, std::move(request), std::move(handler));
  call->llm_started_ns = started_ns;
  if (!parsed.ok()) return call->Fail(parsed.status());
  if (call->request().parameters.contains(kIncludeStopWords)) {
    return call->Fail(
        InvalidArgument(std::string(kIncludeStopWords) +
                        ": this model answers with ids, not with text; send it to the "
                        "ensemble or to tensorrt_llm_bls"));
  }
  auto answer = [this, call](contract::LlmRequest asked) {
    Status fits = PlacePrompt(*call, asked);
    if (fits.ok()) fits = contract::FitToEngine(asked.request, executor().limits(), defaults_);
    if (!fits.ok()) return call->Fail(fits);
    call->streaming = asked.request.streaming;
    call->returns = Returns::Of(asked);
    call->with_sequence_index = SendsSequenceIndex(asked);
    call->seed_by_chance = asked.seed_by_chance;
    call->pad_id = asked.PadId();
    call->prompt_len = static_cast<int>(asked.request.input_ids.size());
    if (!call->streaming && !asked.exclude_input) call->prompt = asked.request.input_ids;
    if (const Status status = Start(std::move(asked.request), call); !status.ok())
      call->Fail(status);
  };
  if (parsed->guide) return AddGuide(call, *std::move(parsed), has_to_read, std::move(answer));
  if (has_to_read) return AnswerLater(call, *std::move(parsed), std::move(answer));
  answer(*std::move(parsed));
}

bool LlmModel::HasToRead(Request& request) const {
  const auto task = PromptTaskOf(request);
  if (task.ok() && *task && backend_.prompt_tables != nullptr &&
      backend_.prompt_tables->HasToRead(**task))
    return true;
  const auto name = LoraNameOf(request);
  if (!name.ok() || name->empty() || backend_.adapters == nullptr) return false;
  if (request.adapter == nullptr) {
    auto found = backend_.adapters->Find(*name);
    if (!found.ok()) return false;
    request.adapter = std::make_shared<const FoundAdapter>(*std::move(found));
  }
  const std::vector<uint64_t> loaded = backend_.executor->adapter_stats().own_ids;
  return std::ranges::find(loaded, request.adapter->use.id) == loaded.end();
}

void LlmModel::AnswerNow(LlmCall& call, contract::LlmRequest parsed, const Answer& answer) {
  try {
    // It may have waited for what others asked.
    if (call.request().cancel->cancelled()) return call.Fail(Cancelled("request was cancelled"));
    answer(std::move(parsed));
  } catch (const std::exception& e) {  // such as bad_alloc: that request's trouble alone
    call.Fail(Caught("unexpected error", e));
  }
}

void LlmModel::AnswerLater(const std::shared_ptr<LlmCall>& call, contract::LlmRequest parsed,
                           Answer answer) {
  const void* const owner = OwnerOf(call->request().client, call->request().memory);
  auto task = [call, answer = std::move(answer), asked = std::move(parsed)]() mutable {
    AnswerNow(*call, std::move(asked), answer);
  };
  backend_.text_pool->Post(std::move(task), WorkerPool::Length::kLong, owner);
}

// One that is new is made by the threads that tokenize.
void LlmModel::AddGuide(const std::shared_ptr<LlmCall>& call, contract::LlmRequest parsed,
                        bool has_to_read, Answer answer) {
  if (backend_.guides == nullptr)
    return call->Fail(
        Unimplemented(parsed.guide->field,
                      "the model's directory has no tokenizer, without which the "
                      "texts of tokens are not known; name one by tokenizer_dir, or send "
                      "it to the ensemble or to tensorrt_llm_bls"));
  const GuideTokens tokens{.num_tokens = executor().limits().vocab_size};
  const bool is_known = backend_.guides->Has(parsed.guide->spec, tokens);
  auto make = [this, call, tokens, answer = std::move(answer)](contract::LlmRequest asked) {
    auto made = backend_.guides->Get(asked.guide->spec, tokens, call->request().memory);
    if (!made.ok())
      return call->Fail(made.status().WithPrefix(asked.guide->field).WithField(asked.guide->field));
    asked.request.guide = *std::move(made);
    answer(std::move(asked));
  };
  if (is_known && !has_to_read) return AnswerNow(*call, std::move(parsed), std::move(make));
  AnswerLater(call, std::move(parsed), std::move(make));
}

// 0.14 and 0.15 send the index wherever num_return_sequences was sent, later ones where it is above
// 1. Beams are no sequences of their own.
bool LlmModel::SendsSequenceIndex(const contract::LlmRequest& parsed) const {
  const SamplingParams& sampling = parsed.request.sampling;
  if (sampling.beam_width > 1 || !sampling.num_return_sequences) return false;
  return *sampling.num_return_sequences > 1 || iteration_profile().release < 16;
}

void LlmModel::InferBatch(Request request, ResponseHandler handler) {
  const int num_rows = NumRows(*this, request);
  const auto is_stop = IsBatchStop(request, num_rows);
  if (is_stop.ok() && *is_stop) return Stop(request, handler);
  Status status = is_stop.status();
  if (status.ok() && request.FindInput("input_lengths") == nullptr) {
    status =
        InvalidArgument("input_lengths is not present in the request: " + std::to_string(num_rows) +
                        " rows of input_ids need the length of each");
  }
  if (status.ok()) return InferRows(*this, std::move(request), std::move(handler));
  statistics().RequestFailed(ReasonOf(status), request.received_ns, clock_.NowNs());
  handler(FinalResponse(*this, request, std::move(status)));
}

Status LlmModel::PlacePrompt(LlmCall& call, contract::LlmRequest& parsed) {
  ASSIGN_OR_RETURN(const auto task, PromptTaskOf(call.request()));
  if (task) {
    if (parsed.request.prompt_table != nullptr)
      return InvalidArgument(kPromptTask,
                             "the request has a prompt_embedding_table too; send one of them");
    if (backend_.prompt_tables == nullptr)
      return InvalidArgument(kPromptTask,
                             "the server has no tables; start it with --prompt-table-dir");
    ASSIGN_OR_RETURN(contract::KnownTable known,
                     backend_.prompt_tables->Get(*task, call.request().memory));
    parsed.request.prompt_table = std::move(known.table);
    parsed.prompt_tuning.digest = std::move(known.digest);
  }
  ASSIGN_OR_RETURN(
      call.prompt_contents,
      contract::PlacePromptTable(executor().limits(), parsed.prompt_tuning, parsed.request));
  return Status::Ok();
}

Status LlmModel::Start(inflight::Request request, const std::shared_ptr<LlmCall>& call) {
  if (call->request().cancel->cancelled()) return Cancelled("request was cancelled");
  RETURN_IF_ERROR(Admit(*call, &request));
  if (backend_.issuer != nullptr) {
    backend_.issuer->BringAdapter(request);
    call->receipt = backend_.issuer->Begin(request, executor().limits());
  }
  Status status = Enqueue(std::move(request), call, *call);
  if (!status.ok()) call->tokens.Settle(0);
  return status;
}

Status LlmModel::Admit(LlmCall& call, inflight::Request* request) {
  const Request& from = call.request();
  if (from.generation == nullptr) request->priority = PriorityOf(from.priority);
  request->queue_timeout_us = QueueTimeoutOf(from.timeout_us);
  request->timeout_ms = TimeoutOf(from);
  SetTurns(from.client, *request);
  ASSIGN_OR_RETURN(request->cache_salt, CacheSaltOf(from, call.prompt_contents));
  request->salt_covers_prompt_table = !call.prompt_contents.empty();
  RETURN_IF_ERROR(ChooseAdapter(from, *request, &call.lora_name));
  call.num_prompt_tokens = static_cast<int64_t>(request->input_ids.size());
  if (from.tally != nullptr) from.tally->AddPrompt(call.num_prompt_tokens);
  call.ExpectSequences(request->sampling);
  call.enqueued_ns = clock_.NowNs();
  call.held = MemoryCharge(from.memory);
  RETURN_IF_ERROR(call.held.Resize(BytesHeld(*request, executor().limits())));
  ASSIGN_OR_RETURN(call.tokens,
                   ClientTokens::Take(from.client, MostTokens(*request), call.enqueued_ns));
  return Status::Ok();
}

Status LlmModel::Enqueue(inflight::Request request, const std::shared_ptr<ResponseSink>& sink,
                         const LlmCall& call) {
  const auto cancel = call.request().cancel;
  if (cancel->cancelled()) return Cancelled("request was cancelled");
  const auto hold = request.streaming ? call.request().hold : nullptr;
  const Result<RequestId> id = backend_.executor->Enqueue(std::move(request), sink);
  if (!id.ok()) {
    const Status& status = id.status();
    if (status.code() == StatusCode::kUnavailable) NoteExecutorError();
    if (status.reason() == Reason::kQueueFull) {  // as other models' full queues answer
      return Unavailable(status.message()).WithReason(Reason::kQueueFull);
    }
    return status;
  }
  try {
    if (call.is_of(*this)) active_.Add(call, *id);
    // Cancel of a finished request is ignored, so nobody need take this away again.
    cancel->SetListener([executor = std::weak_ptr(backend_.executor), id = *id] {
      if (const auto alive = executor.lock()) alive->Cancel(id);
    });
    if (hold != nullptr) {
      hold->AddListener([executor = std::weak_ptr(backend_.executor), id = *id](bool is_held) {
        if (const auto alive = executor.lock()) alive->Hold(id, is_held);
      });
    }
  } catch (const std::bad_alloc&) {  // its client is told so, and nobody could stop it any more
    cancel->Cancel();
    backend_.executor->Cancel(*id);
    throw;
  }
  return Status::Ok();
}

// By its name, which the answers then have.
Status LlmModel::ChooseAdapter(const Request& asked, inflight::Request& request,
                               std::string* name) const {
  ASSIGN_OR_RETURN(*name, LoraNameOf(asked));
  if (name->empty()) return Status::Ok();
  if (request.lora)
    return InvalidArgument(kLoraName, "got beside lora_task_id; one of them names the adapter");
  if (backend_.adapters == nullptr)
    return NotFound(std::string(kLoraName) +
                    ": this model has no adapters with names (start the server with "
                    "--lora-modules or --lora-dir)")
        .WithField(std::string(kLoraName));
  if (asked.adapter != nullptr) {
    request.lora = ChargedUse(*asked.adapter, asked.memory);
  } else {
    ASSIGN_OR_RETURN(const FoundAdapter found, backend_.adapters->Find(*name));
    request.lora = ChargedUse(found, asked.memory);
  }
  return Status::Ok();
}

std::optional<LoadedAdapters> LlmModel::loaded_adapters() const {
  if (backend_.adapters == nullptr) return std::nullopt;
  const AdapterStats stats = backend_.executor->adapter_stats();
  return LoadedAdapters{.names = backend_.adapters->NamesOf(stats.own_ids),
                        .max = stats.max_adapters};
}

std::vector<MemoryUsage> LlmModel::memory_usage() const {
  const ExecutorStats stats = backend_.executor->stats();
  std::vector<MemoryUsage> usage;
  const auto add = [this, &usage](std::string_view type, int64_t bytes) {
    const int64_t id = type == "GPU" ? backend_.gpu : 0;
    if (bytes > 0) usage.push_back({.type = type, .id = id, .bytes = static_cast<uint64_t>(bytes)});
  };
  add("CPU", stats.cpu_memory_bytes);
  add("CPU_PINNED", stats.pinned_memory_bytes);
  add("GPU", stats.gpu_memory_bytes);
  return usage;
}

void LlmModel::NoteExecutorError() {
  if (!backend_.has_processes && !executor().healthy())
    has_fault_.store(true, std::memory_order_release);
}

// Levels 1 (first) to priority_levels of the configuration -> 1 to 0 of the executor.
float LlmModel::PriorityOf(uint64_t level) const {
  const auto& batching = config().dynamic_batching();
  const uint64_t levels = batching.priority_levels();
  if (levels < 2) return inflight::Request().priority;
  if (level < 1 || level > levels) level = batching.default_priority_level();
  return 1.0F - static_cast<float>(level - 1) / static_cast<float>(levels - 1);
}

// The queue policy's time-out, microseconds; a request may shorten it where the policy says so
// (docs/reference/repositories.md, "The queue policy"). None: it may wait for ever.
std::optional<int64_t> LlmModel::QueueTimeoutOf(uint64_t asked_us) const {
  const auto& policy = config().dynamic_batching().default_queue_policy();
  const uint64_t limit_us = std::min<uint64_t>(policy.default_timeout_microseconds(), INT64_MAX);
  if (limit_us == 0) return std::nullopt;
  const bool is_own = policy.allow_timeout_override() && asked_us > 0;
  return static_cast<int64_t>(is_own ? std::min(asked_us, limit_us) : limit_us);
}

void LlmModel::Stop(const Request& request, const ResponseHandler& handler) {
  if (request.id.empty()) {
    return handler(
        FinalResponse(*this, request,
                      InvalidArgument("Trying to stop a request but request ID is not provided")));
  }
  Response acknowledgement;
  acknowledgement.model_name = name();
  acknowledgement.model_version = version();
  acknowledgement.id = request.id;
  acknowledgement.is_final = true;
  acknowledgement.has_answer = true;
  const std::vector<RequestId> ids = active_.Stop(request.id, request.identity());
  handler(std::move(acknowledgement));  // before the last response of what is stopped
  for (const RequestId id : ids) backend_.executor->Cancel(id);
}

}  // namespace inflight::serving
