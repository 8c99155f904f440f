// SPDX-License-Identifier: Apache-2.0
#include "serving/pipelines/pipeline_model.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"
#include "contract/llm_api.h"
#include "contract/llm_response.h"
#include "contract/tensor_values.h"
#include "serving/core/run_model.h"
#include "serving/llm/answer_text.h"
#include "serving/llm/llm_call.h"
#include "serving/llm/row_batch.h"
#include "serving/pipelines/generation_call.h"
#include "serving/pipelines/pipeline_guides.h"
#include "serving/pipelines/speculative_rounds.h"
#include "serving/pipelines/text_call.h"

namespace inflight::serving {
namespace {

// --- what upstream's BLS checks before it calls anything, in its words ---

Status CheckText(const Tensor& text) {
  ASSIGN_OR_RETURN(const auto strings, text.Strings());
  if (!strings.empty() && !strings.front().empty()) return Status::Ok();
  return InvalidArgument(text.name + " is required");
}

Status CheckMaxTokens(const Tensor& max_tokens) {
  const auto value = contract::ReadInt32(max_tokens);
  if (value.ok() && *value > 0) return Status::Ok();
  return InvalidArgument(max_tokens.name + " must be a single value > 0");
}

// `before`: what the prompt is made of, of the inputs before `input`.
Status CheckOnlyPrompt(const Tensor* before, const Tensor& input) {
  if (before == nullptr) return Status::Ok();
  return InvalidArgument(input.name, "is given beside " + before->name + "; send one of them");
}

bool HasText(const Tensor& tensor) {
  const auto strings = tensor.Strings();
  return strings.ok() && std::ranges::any_of(*strings, [](auto text) { return !text.empty(); });
}

// Of a model without batches.
void LeaveOutBatch(std::vector<Tensor>& outputs) {
  for (Tensor& output : outputs)
    if (output.shape.size() > 1 && output.shape.front() == 1)
      output.shape.erase(output.shape.begin());
}

// Where the outputs of the model have none of that name.
void AddText(const contract::OutputSource& source, std::vector<Tensor>& outputs) {
  constexpr std::string_view kName = "text_output";
  if (std::ranges::find(outputs, kName, &Tensor::name) != outputs.end()) return;
  const contract::Output& output = *contract::FindTextOutput(kName);
  outputs.push_back(output.make(output, kName, output.type, source));
}

Status CheckOnlyOne(const Tensor& tensor) {
  ASSIGN_OR_RETURN(const int32_t count, contract::ReadInt32(tensor));
  if (count == 1) return Status::Ok();
  return Unimplemented(tensor.name, "got " + std::to_string(count) +
                                        ", which is not supported; leave it out or send 1");
}

Status ReadSpeculation(const Tensor& tensor, SpeculativeRounds::Options* options) {
  if (tensor.name == "use_draft_logits") {
    ASSIGN_OR_RETURN(options->use_draft_logits, contract::ReadBool(tensor));
    return Status::Ok();
  }
  ASSIGN_OR_RETURN(options->num_draft_tokens, contract::ReadInt32(tensor));
  if (options->num_draft_tokens >= 0) return Status::Ok();
  return InvalidArgument(tensor.name, "got " + std::to_string(options->num_draft_tokens) +
                                          ", must be at least 0 (0 for none)");
}

// Drafts are proposed by a model that the BLS names.
Status CheckDraftModel(const PipelineMembers& members, int num_draft_tokens) {
  if (members.draft != nullptr) return Status::Ok();
  if (!members.draft_status.ok()) return members.draft_status;
  return InvalidArgument(
      "cannot perform speculative decoding without draft model "
      "(num_draft_tokens is " +
      std::to_string(num_draft_tokens) +
      "; set tensorrt_llm_draft_model_name of the BLS model, or leave it out)");
}

}  // namespace

// What one request brings, with its texts as tokens.
struct PipelineModel::Inputs {
  std::vector<TokenId> ids;
  contract::Words stop_words;
  std::vector<std::string> stop_texts;
  bool includes_stop_words = false;
  contract::Words bad_words;
  std::shared_ptr<const BadTexts> bad_texts;
  std::vector<float> bias;                // [vocab_size], or empty
  std::vector<contract::NamedInput> llm;  // those that the LLM takes as they are
  bool has_end_id = false;                // among them
  SpeculativeRounds::Options speculation;
  const Tensor* query = nullptr;  // or the conversation
  const Tensor* bias_words = nullptr;
  const Tensor* bias_weights = nullptr;
};

// One request through the pipeline.
class PipelineModel::Call final : public LlmCall {
 public:
  Call(PipelineModel& pipeline, const PipelineMembers& its_members, Request request,
       ResponseHandler handler)
      : LlmCall(pipeline, *its_members.llm, std::move(request), std::move(handler)),
        members(its_members),
        pipeline_(pipeline) {}

  const PipelineMembers members;  // loaded until the request ends
  // Set by Prepare, before the request starts.
  int64_t preprocessing_started_ns = 0;
  int64_t preprocessing_ended_ns = 0;  // 0 = it failed
  std::optional<AnswerText> text;
  std::vector<TokenId> prompt;  // that stands before the ids of an answer; empty: none
  TokenId pad_id = -1;
  int prompt_len = 0;
  bool with_sequence_index = false;
  SpeculativeRounds::Options speculation;

  bool goes_on() const override { return !is_ended_; }
  bool has_stopped(int sequence) const override { return text->HasStopped(sequence); }

 protected:
  bool Fill(inflight::Response& response, Response& out) override;
  Status Describe(const Status& status) const override {
    if (pipeline_.kind_ != Kind::kEnsemble) return status;
    return status.WithMessage("in ensemble '" + pipeline_.name() + "', " + status.message());
  }
  void OnSuccess(const RequestSpan& llm) override;
  void OnFailure(const Status& status, int64_t finished_ns) override;

 private:
  void EndIfStopped(const inflight::Response& response);
  void AddSequence(Response& out) const;
  std::optional<int> BatchIndex() const;
  void CountPreprocessing();
  void CountPostprocessing();
  void TraceSteps(const RequestSpan& llm, int64_t finished_ns) const;

  PipelineModel& pipeline_;
  bool is_ended_ = false;                  // its texts have stopped: the executor was told
  int64_t postprocessing_started_ns_ = 0;  // of the first text
  int64_t postprocessing_ns_ = 0;          // of all
  uint64_t num_responses_ = 0;
};

std::optional<int> PipelineModel::Call::BatchIndex() const {
  const bool is_always_sent = pipeline_.WithDummies(members) && llm_.always_sends_batch_index();
  if (!request_.row && !is_always_sent) return std::nullopt;
  return RowIndex();
}

// Nobody waits for what follows a stop word.
void PipelineModel::Call::EndIfStopped(const inflight::Response& response) {
  if (response.is_final || is_ended_ || !text->all_have_stopped()) return;
  is_ended_ = true;
  llm_.executor().Cancel(response.request_id);
}

// What that server adds to each response of an ensemble.
void PipelineModel::Call::AddSequence(Response& out) const {
  out.parameters["sequence_id"] = static_cast<int64_t>(request_.sequence_id);
  out.parameters["sequence_start"] = request_.sequence_start;
  out.parameters["sequence_end"] = request_.sequence_end;
}

bool PipelineModel::Call::Fill(inflight::Response& response, Response& out) {
  const int64_t started_ns = llm_.clock().NowNs();
  if (postprocessing_started_ns_ == 0) postprocessing_started_ns_ = started_ns;
  if (text->HasStopped(response.sequence_index) && !response.is_sequence_final) return false;
  const std::vector<std::string> texts = text->Append(response);
  EndIfStopped(response);
  std::vector<contract::SequenceView> sequences;
  if (pipeline_.routes_.has_ids) sequences = contract::SequencesOf(response);
  const contract::LlmResponseOptions options = {
      .prompt = prompt,
      .pad_id = pad_id,
      .return_log_probs = returns.log_probs,
      .with_dummies = pipeline_.WithDummies(members),
      .num_dummy_log_probs = streaming ? 1 : prompt_len,
      .batch_index = BatchIndex(),
      .with_sequence_index = with_sequence_index,
      .return_generation_logits = returns.generation_logits,
      .num_top_log_probs = returns.num_top_log_probs,
      .facts = Facts(text->finish_reasons())};
  const contract::OutputSource source = {
      .response = response, .options = options, .texts = texts, .sequences = sequences};
  out.outputs.reserve(pipeline_.routes_.outputs.size());
  for (const OutputRoute& route : pipeline_.routes_.outputs) {
    const contract::Output* output = route.output;
    if (output == nullptr || !output->is_in(*output, source)) continue;
    if (!request_.WantsOutput(route.name)) continue;
    out.outputs.push_back(output->make(*output, route.name, route.type, source));
  }
  if (request_.wants_text) AddText(source, out.outputs);
  if (pipeline_.kind_ == Kind::kEnsemble) AddSequence(out);
  if (pipeline_.config().max_batch_size() == 0) LeaveOutBatch(out.outputs);
  postprocessing_ns_ += llm_.clock().NowNs() - started_ns;
  ++num_responses_;
  return true;
}

void PipelineModel::Call::CountPreprocessing() {
  members.preprocessing->statistics().RequestSucceeded(
      {.received_ns = preprocessing_started_ns,
       .compute_start_ns = preprocessing_started_ns,
       .compute_input_end_ns = preprocessing_started_ns,
       .compute_output_start_ns = preprocessing_ended_ns,
       .finished_ns = preprocessing_ended_ns});
}

void PipelineModel::Call::CountPostprocessing() {
  if (num_responses_ == 0) return;
  members.postprocessing->statistics().RequestsSucceeded(
      {.compute_output_start_ns = postprocessing_ns_, .finished_ns = postprocessing_ns_},
      num_responses_);
}

// The pipeline's times are the sums over its steps; detokenizing a chunk overlaps the next step.
void PipelineModel::Call::OnSuccess(const RequestSpan& llm) {
  CountPreprocessing();
  CountPostprocessing();
  RequestSpan span;
  span.received_ns = request_.received_ns;
  span.compute_start_ns = span.received_ns + (llm.compute_start_ns - llm.received_ns);
  span.compute_input_end_ns =
      span.compute_start_ns + (llm.compute_input_end_ns - llm.compute_start_ns);
  span.compute_output_start_ns =
      span.compute_input_end_ns + (preprocessing_ended_ns - preprocessing_started_ns) +
      (llm.compute_output_start_ns - llm.compute_input_end_ns) + postprocessing_ns_;
  span.finished_ns = llm_.clock().NowNs();
  // What was detokenized while the LLM went on took no time of its own.
  span.compute_output_start_ns = std::min(span.compute_output_start_ns, span.finished_ns);
  CountSuccess(request_, pipeline_.statistics(), span);
  TraceSteps(llm, span.finished_ns);
}

// A BLS model computes all the time; an ensemble itself does nothing.
void PipelineModel::Call::TraceSteps(const RequestSpan& llm, int64_t finished_ns) const {
  const Trace& trace = request_.trace;
  if (!trace) return;
  const auto whole = [](int64_t from_ns, int64_t to_ns) {
    return RequestSpan{.received_ns = from_ns,
                       .compute_start_ns = from_ns,
                       .compute_input_end_ns = from_ns,
                       .compute_output_start_ns = to_ns,
                       .finished_ns = to_ns};
  };
  if (pipeline_.kind_ == Kind::kBls) {
    trace.AddSpan(whole(preprocessing_started_ns, finished_ns));
  } else {
    trace.Mark("QUEUE_START", preprocessing_started_ns);
  }
  TraceStep(trace, *members.preprocessing, request_.id,
            whole(preprocessing_started_ns, preprocessing_ended_ns));
  TraceStep(trace, *members.llm, request_.id, llm);
  TraceStep(trace, *members.postprocessing, request_.id,
            whole(postprocessing_started_ns_, finished_ns));
}

void PipelineModel::Call::OnFailure(const Status& status, int64_t finished_ns) {
  if (preprocessing_ended_ns != 0) {
    CountPreprocessing();
  } else if (preprocessing_started_ns != 0) {
    members.preprocessing->statistics().RequestFailed(ReasonOf(status), preprocessing_started_ns,
                                                      finished_ns);
  }
  CountPostprocessing();
  const bool is_ensemble = pipeline_.kind_ == Kind::kEnsemble;
  const FailureReason reason = is_ensemble ? FailureReason::kOther : ReasonOf(status);
  CountFailure(request_, pipeline_.statistics(), reason, request_.received_ns, finished_ns,
               status.code() == StatusCode::kCancelled);
}

PipelineModel::PipelineModel(Kind kind, ::inference::ModelConfig config, std::string version,
                             FindMembers find_members, PipelineRoutes routes,
                             const PipelineOptions& options)
    : Model(std::move(config), std::move(version)),
      kind_(kind),
      find_members_(std::move(find_members)),
      routes_(std::move(routes)),
      options_(options) {}

Result<std::shared_ptr<PipelineModel>> PipelineModel::Create(Kind kind,
                                                             ::inference::ModelConfig config,
                                                             std::string version,
                                                             PipelineMembers members,
                                                             const PipelineOptions& options) {
  CHECK(kind != Kind::kBls);
  ASSIGN_OR_RETURN(PipelineRoutes routes, kind == Kind::kEnsemble ? EnsembleRoutes(config, members)
                                                                  : LlmApiRoutes(config));
  auto text = TextModelOf(members);
  std::shared_ptr<PipelineModel> model(new PipelineModel(
      kind, std::move(config), std::move(version),
      [members = std::move(members)] { return members; }, std::move(routes), options));
  model->text_ = std::move(text);
  return model;
}

Result<std::shared_ptr<PipelineModel>> PipelineModel::CreateBls(::inference::ModelConfig config,
                                                                std::string version,
                                                                FindMembers find_members,
                                                                const PipelineOptions& options) {
  ASSIGN_OR_RETURN(PipelineRoutes routes, BlsRoutes(config));
  return std::shared_ptr<PipelineModel>(
      new PipelineModel(Kind::kBls, std::move(config), std::move(version), std::move(find_members),
                        std::move(routes), options));
}

bool PipelineModel::ready() const {
  const auto members = find_members_();
  return !members.ok() || members->llm->ready();
}

std::string_view PipelineModel::why_not_ready() const {
  const auto members = find_members_();
  return members.ok() ? members->llm->why_not_ready() : std::string_view();
}

std::shared_ptr<const TextModel> PipelineModel::text() const {
  if (text_ != nullptr || kind_ != Kind::kBls) return text_;
  const auto members = find_members_();
  return members.ok() ? TextModelOf(*members) : nullptr;
}

bool PipelineModel::WithDummies(const PipelineMembers& members) const {
  if (members.llm->defaults().own) return false;
  return kind_ == Kind::kBls ? members.llm->with_dummies() : routes_.with_dummies;
}

bool PipelineModel::HasDefaultEndId(const PipelineMembers& members) const {
  return kind_ == Kind::kBls ? BlsHasDefaultEndId(members) : routes_.has_default_end_id;
}

const InputRoute* PipelineModel::FindInputRoute(std::string_view name) const {
  for (const InputRoute& route : routes_.inputs) {
    if (route.name == name) return &route;
  }
  return nullptr;
}

// Nobody is there who could take the request.
void PipelineModel::Refuse(const Request& request, const ResponseHandler& handler,
                           const Status& status) {
  const int64_t now_ns = Clock::System().NowNs();
  CountFailure(request, statistics(), FailureReason::kBackend,
               request.received_ns == 0 ? now_ns : request.received_ns, now_ns,
               /*is_cancelled=*/false);
  handler(FinalResponse(*this, request, status));
}

bool PipelineModel::OnlyStops(const Request& request) const {
  if (kind_ != Kind::kLlmApi) return false;
  const auto members = find_members_();
  return members.ok() && members->llm->OnlyStops(request);
}

// Ends the requests of its id. Answered by CANCELLED, whether there were any or not, as
// NVIDIA/TensorRT-LLM/triton_backend/all_models/llmapi/tensorrt_llm/1/model.py does.
void PipelineModel::Stop(LlmModel& llm, const Request& request,
                         const ResponseHandler& handler) const {
  if (request.id.empty()) {
    return handler(FinalResponse(
        *this, request, InvalidArgument("A request id must be provided for request cancellation")));
  }
  const std::vector<RequestId> ids = llm.active().Stop(request.id, request.identity());
  handler(FinalResponse(*this, request, Cancelled("Request cancelled by client")));
  for (const RequestId id : ids) llm.executor().Cancel(id);
}

void PipelineModel::Infer(Request request, ResponseHandler handler) {
  const auto members = find_members_();
  if (request.generation != nullptr)
    return members.ok() ? Generate(*this, *members, std::move(request), std::move(handler))
                        : Refuse(request, handler, members.status());
  if (members.ok() && OnlyStops(request)) return Stop(*members->llm, request, handler);
  if (NumRows(*this, request) > 1) return InferRows(*this, std::move(request), std::move(handler));
  if (!members.ok()) return Refuse(request, handler, members.status());
  if (request.received_ns == 0) request.received_ns = members->llm->clock().NowNs();
  const size_t text_bytes = TextBytes(*members, request);
  const bool has_to_read = members->llm->HasToRead(request);
  auto call = std::make_shared<Call>(*this, *members, std::move(request), std::move(handler));
  BeginCall(std::move(call), text_bytes, has_to_read, members->preprocessing->text_pool(),
            [this](const std::shared_ptr<Call>& begun) { Run(begun); });
}

// To be looked at: for bad words a byte of every token and more, for a new guide much more.
size_t PipelineModel::TextBytes(const PipelineMembers& members, const Request& request) const {
  size_t text_bytes = 0;
  const Tensor* guide_type = nullptr;
  const Tensor* guide = nullptr;
  for (const Tensor& input : request.inputs) {
    if (input.datatype != DataType::kBytes) continue;
    text_bytes += input.data.size();
    const InputRoute* route = FindInputRoute(input.name);
    if (route == nullptr) continue;
    if (route->role == InputRole::kBadWords && HasText(input))
      text_bytes += static_cast<size_t>(members.postprocessing->tokenizer()->vocab_size());
    if (route->llm_name == contract::kGuideType) guide_type = &input;
    if (route->llm_name == contract::kGuide) guide = &input;
  }
  const auto asked = contract::ReadGuide(guide_type, guide);
  if (asked.ok() && *asked && IsNewGuide(members, (*asked)->spec, {})) text_bytes += kLongWorkBytes;
  return text_bytes;
}

void PipelineModel::Run(const std::shared_ptr<Call>& call) {
  if (call->request().cancel->cancelled()) return call->Fail(Cancelled("request was cancelled"));
  auto prepared = Prepare(*call);
  Status status = prepared.status();
  const std::shared_ptr<LlmModel> llm = call->members.llm;  // the answer may come before Start does
  if (status.ok() && call->speculation.num_draft_tokens > 0) {
    status = SpeculativeRounds::Start(std::move(prepared->request), call, llm, call->members.draft,
                                      call->speculation);
  } else if (status.ok()) {
    status = llm->Start(std::move(prepared->request), call);
  }
  if (!status.ok()) call->Fail(status);
}

Status PipelineModel::ReadInput(const PipelineMembers& members, const Tensor& input,
                                const InputRoute& route, Inputs& inputs) const {
  const PreprocessingModel& pre = *members.preprocessing;
  switch (route.role) {
    case InputRole::kQuery: {
      RETURN_IF_ERROR(CheckOnlyPrompt(inputs.query, input));
      inputs.query = &input;
      if (kind_ == Kind::kBls) RETURN_IF_ERROR(CheckText(input));
      ASSIGN_OR_RETURN(inputs.ids, pre.EncodePrompt(input));
      break;
    }
    case InputRole::kMessages: {
      RETURN_IF_ERROR(CheckOnlyPrompt(inputs.query, input));
      inputs.query = &input;
      ASSIGN_OR_RETURN(inputs.ids, pre.EncodeMessages(input));
      break;
    }
    case InputRole::kStopWords: {
      ASSIGN_OR_RETURN(inputs.stop_words, pre.EncodeWords(input, &inputs.stop_texts));
      break;
    }
    case InputRole::kBadWords: {
      std::vector<std::string> texts;
      ASSIGN_OR_RETURN(inputs.bad_words, pre.EncodeWords(input, &texts));
      auto made = members.postprocessing->bad_texts().Get(texts);
      if (!made.ok()) return made.status().WithPrefix(input.name);
      inputs.bad_texts = *std::move(made);
      break;
    }
    case InputRole::kBiasWords:
      inputs.bias_words = &input;
      break;
    case InputRole::kBiasWeights:
      inputs.bias_weights = &input;
      break;
    case InputRole::kUnsupported:
      return pre.CheckUnsupported(input);
    case InputRole::kOnlyOne:
      return CheckOnlyOne(input);
    case InputRole::kSpeculation:
      return ReadSpeculation(input, &inputs.speculation);
    case InputRole::kLlm:
      if (kind_ == Kind::kBls && route.llm_name == "request_output_len") {
        RETURN_IF_ERROR(CheckMaxTokens(input));
      }
      inputs.has_end_id |= route.llm_name == "end_id";
      inputs.llm.push_back({route.llm_name, &input});
      break;
  }
  return Status::Ok();
}

Status PipelineModel::NoPrompt() const {
  std::string query, messages;
  for (const InputRoute& route : routes_.inputs) {
    if (route.role == InputRole::kQuery) query = route.name;
    if (route.role == InputRole::kMessages) messages = route.name;
  }
  if (messages.empty()) return InvalidArgument("QUERY is not present in the request");
  return InvalidArgument("QUERY is not present in the request; send " + query + " or " + messages);
}

// What preprocessing does.
Result<PipelineModel::Inputs> PipelineModel::ReadInputs(const PipelineMembers& members,
                                                        const Request& request) const {
  Inputs inputs;
  for (const Tensor& input : request.inputs) {
    const InputRoute* route = FindInputRoute(input.name);
    if (route == nullptr) return InvalidArgument("unexpected inference input '" + input.name + "'");
    RETURN_IF_ERROR(ReadInput(members, input, *route, inputs));
  }
  if (inputs.query == nullptr) return NoPrompt();
  ASSIGN_OR_RETURN(inputs.includes_stop_words, IncludesStopWords(request.parameters));
  if (inputs.ids.empty()) {
    return InvalidArgument(inputs.query->name + ": the prompt has no tokens");
  }
  ASSIGN_OR_RETURN(inputs.bias,
                   members.preprocessing->EncodeBias(inputs.bias_words, inputs.bias_weights,
                                                     members.llm->executor().limits().vocab_size));
  return inputs;
}

// What the LLM is asked for.
Result<contract::LlmRequest> PipelineModel::ParseForLlm(Call& call, Inputs& inputs) const {
  const PipelineMembers& members = call.members;
  contract::LlmRequestDefaults defaults = members.llm->defaults();
  defaults.decoupled = defaults.decoupled && decoupled();
  ASSIGN_OR_RETURN(auto parsed,
                   contract::ParseLlmRequest(inputs.llm, defaults, call.request().memory));
  if (parsed.is_stop) return Unimplemented("stop is supported by the tensorrt_llm model only");
  const ExecutorLimits& limits = members.llm->executor().limits();
  inflight::Request& request = parsed.request;
  request.input_ids = std::move(inputs.ids);
  request.stop_words = std::move(inputs.stop_words);
  request.bad_words = std::move(inputs.bad_words);
  request.bad_texts = std::move(inputs.bad_texts);
  if (!inputs.bias.empty()) {
    request.embedding_bias = std::make_shared<std::vector<float>>(std::move(inputs.bias));
  }
  if (!inputs.has_end_id && HasDefaultEndId(members)) {
    request.end_ids = members.llm->end_ids();
    const auto eos = members.preprocessing->tokenizer().eos_id();
    if (request.end_ids.empty() && eos && *eos < limits.vocab_size) request.end_ids.push_back(*eos);
  }
  if (kind_ == Kind::kLlmApi && request.max_tokens == 0)
    request.max_tokens = contract::kLlmApiMaxTokens;
  if (parsed.guide) {
    ASSIGN_OR_RETURN(request.guide, GuideOf(members, *parsed.guide, {}, call.request().memory));
  }
  RETURN_IF_ERROR(members.llm->PlacePrompt(call, parsed));
  RETURN_IF_ERROR(contract::FitToEngine(request, limits, defaults));
  if (options_.accumulate_tokens && request.streaming && request.sampling.beam_width > 1) {
    return InvalidArgument("Accumulation of tokens is only implemented for beam width = 1");
  }
  return parsed;
}

bool PipelineModel::MatchesStopTexts(const PipelineMembers& members, const Request& request) const {
  if (routes_.has_ids && !request.wants_text) return false;
  return members.matches_stop_texts || request.parameters.contains(kIncludeStopWords);
}

Result<contract::LlmRequest> PipelineModel::Prepare(Call& call) {
  const PipelineMembers& members = call.members;
  const Clock& clock = members.llm->clock();
  call.preprocessing_started_ns = clock.NowNs();
  ASSIGN_OR_RETURN(Inputs inputs, ReadInputs(members, call.request()));
  call.preprocessing_ended_ns = call.llm_started_ns = clock.NowNs();
  ASSIGN_OR_RETURN(auto parsed, ParseForLlm(call, inputs));
  const inflight::Request& request = parsed.request;
  call.speculation = inputs.speculation;
  if (const int num_drafts = call.speculation.num_draft_tokens; num_drafts > 0) {
    RETURN_IF_ERROR(CheckDraftModel(members, num_drafts));
  }
  call.streaming = request.streaming;
  call.ends_apart = kind_ == Kind::kBls && decoupled();
  call.returns = Returns::Of(parsed);
  call.with_sequence_index = members.llm->SendsSequenceIndex(parsed);
  call.seed_by_chance = parsed.seed_by_chance;
  call.prompt_len = static_cast<int>(request.input_ids.size());
  AnswerTextOptions text{.tokenizer = members.postprocessing->tokenizer(),
                         .skip_special_tokens = members.postprocessing->skip_special_tokens(),
                         .num_sequences = request.sampling.num_return_sequences.value_or(1),
                         .stop_words = MatchesStopTexts(members, call.request())
                                           ? std::move(inputs.stop_texts)
                                           : std::vector<std::string>(),
                         .trims_stop_words = kind_ == Kind::kLlmApi || !inputs.includes_stop_words,
                         .accumulates = options_.accumulate_tokens && request.streaming};
  if (!request.streaming && !parsed.exclude_input) text.prompt = request.input_ids;
  if (routes_.has_ids) call.prompt = text.prompt;
  call.pad_id = parsed.PadId();
  call.text.emplace(std::move(text));
  return parsed;
}

}  // namespace inflight::serving
