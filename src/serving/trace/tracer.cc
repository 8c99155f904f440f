// SPDX-License-Identifier: Apache-2.0
#include "serving/trace/tracer.h"

#include "serving/trace/trace_text.h"

namespace inflight::serving {
namespace {

// Of traces that wait to be written together; beyond it they go out as they are.
constexpr size_t kMaxHeldBytes = size_t{16} << 20;

}  // namespace

// The requests that are counted together, under settings that do not change: an update makes a new
// one, and this one ends with its last trace.
class Tracer::Scope : public std::enable_shared_from_this<Scope> {
 public:
  Scope(const TraceSettings& settings, std::shared_ptr<TraceFile> file,
        std::shared_ptr<TraceExporter> exporter)
      : settings_(settings),
        file_(std::move(file)),
        exporter_(std::move(exporter)),
        num_left_(settings.count) {}

  ~Scope() { Write(/*is_numbered=*/settings_.log_frequency != 0); }

  // As they stand now: `count` is what is left.
  TraceSettings settings() const {
    const std::lock_guard lock(mutex_);
    TraceSettings now = settings_;
    now.count = num_left_;
    return now;
  }

  bool may_trace() const {
    return settings_.levels.any() && (exporter_ != nullptr || file_ != nullptr);
  }

  bool Take(bool has_context) {
    if (!may_trace()) return false;
    const std::lock_guard lock(mutex_);
    if (has_context && exporter_ != nullptr) return true;
    if (settings_.rate == 0 || ++num_requests_ % settings_.rate != 0 || num_left_ == 0) {
      return false;
    }
    if (num_left_ > 0) --num_left_;
    ++num_running_;
    return true;
  }

  void Finish(FinishedTrace trace) {
    if (exporter_ != nullptr) return exporter_->Export(std::move(trace));
    const std::string text = TraceJson(trace);
    const std::lock_guard lock(mutex_);
    --num_running_;
    if (!held_.empty()) held_ += ',';
    held_ += text;
    ++num_held_;
    const bool is_full = settings_.log_frequency != 0 && num_held_ >= settings_.log_frequency;
    const bool is_last = num_left_ == 0 && num_running_ == 0;
    if (is_full || is_last) return Write(/*is_numbered=*/true);
    const bool has_files = settings_.log_frequency != 0 || settings_.count >= 0;
    if (!has_files || held_.size() > kMaxHeldBytes) Write(/*is_numbered=*/false);
  }

  TraceLevels levels() const { return settings_.levels; }

 private:
  void Write(bool is_numbered) {
    if (held_.empty()) return;
    std::string text = std::exchange(held_, {});
    num_held_ = 0;
    is_numbered ? file_->WriteNumbered(std::move(text)) : file_->Append(std::move(text));
  }

  const TraceSettings settings_;
  const std::shared_ptr<TraceFile> file_;
  const std::shared_ptr<TraceExporter> exporter_;
  mutable std::mutex mutex_;
  uint64_t num_requests_ = 0;
  int32_t num_left_;
  int64_t num_running_ = 0;
  std::string held_;  // of a file that is not complete
  uint32_t num_held_ = 0;
};

Tracer::Tracer(TraceOptions options)
    : options_(std::move(options)),
      file_(options_.file.empty() ? nullptr : std::make_shared<TraceFile>(options_.file)),
      next_id_(std::make_shared<std::atomic<uint64_t>>(1)),
      scope_(MakeScope(options_.start)) {
  is_on_ = scope_->may_trace();
}

std::shared_ptr<Tracer::Scope> Tracer::MakeScope(const TraceSettings& settings) const {
  return std::make_shared<Scope>(settings, file_, options_.exporter);
}

const std::shared_ptr<Tracer::Scope>& Tracer::ScopeOfLocked(const std::string& model) const {
  const auto found = model_scopes_.find(model);
  return found == model_scopes_.end() ? scope_ : found->second;
}

void Tracer::Update(const std::string& model, const TraceUpdate& update) {
  // What a count has left stays, unless the update is about it.
  const auto replaced = [&](const std::shared_ptr<Scope>& scope, TraceSettings settings,
                            bool keeps_count) {
    if (keeps_count) settings.count = scope->settings().count;
    return MakeScope(settings);
  };
  const std::lock_guard lock(mutex_);
  if (!model.empty()) {
    TraceOverrides& own = model_overrides_[model];
    own.Change(update);
    if (own.empty()) {
      model_overrides_.erase(model);
      model_scopes_.erase(model);
    } else {
      const bool is_known = model_scopes_.contains(model);
      model_scopes_[model] =
          replaced(ScopeOfLocked(model), own.Over(overrides_.Over(options_.start)),
                   is_known && !update.count.is_asked);
    }
  } else {
    overrides_.Change(update);
    const TraceSettings of_all = overrides_.Over(options_.start);
    scope_ = replaced(scope_, of_all, !update.count.is_asked);
    for (auto& [name, scope] : model_scopes_) {
      const TraceOverrides& own = model_overrides_.at(name);
      scope = replaced(scope, own.Over(of_all), own.count || !update.count.is_asked);
    }
  }
  bool is_on = scope_->may_trace();
  for (const auto& [name, scope] : model_scopes_) is_on |= scope->may_trace();
  is_on_.store(is_on, std::memory_order_relaxed);
}

Tracer::Description Tracer::Describe(const std::string& model) const {
  TraceSettings settings;
  {
    const std::lock_guard lock(mutex_);
    settings = ScopeOfLocked(model)->settings();
  }
  Description described = {{"trace_level", TraceLevelNames(settings.levels)},
                           {"trace_rate", {std::to_string(settings.rate)}},
                           {"trace_count", {std::to_string(settings.count)}}};
  if (options_.exporter == nullptr) {
    described.push_back({"log_frequency", {std::to_string(settings.log_frequency)}});
    described.push_back({"trace_file", {options_.file}});
    described.push_back({"trace_mode", {"triton"}});
    return described;
  }
  described.push_back({"trace_mode", {options_.exporter->mode()}});
  for (auto& [name, value] : options_.exporter->settings()) described.push_back({name, {value}});
  return described;
}

Trace Tracer::Sample(const std::string& model, const TraceContext& context) {
  if (!is_on()) return {};
  std::shared_ptr<Scope> scope;
  {
    const std::lock_guard lock(mutex_);
    scope = ScopeOfLocked(model);
  }
  if (!scope->Take(!context.traceparent.empty())) return {};
  const TraceLevels levels = scope->levels();
  return {levels, context, [ids = next_id_] { return ids->fetch_add(1); },
          [scope = std::move(scope)](FinishedTrace trace) { scope->Finish(std::move(trace)); }};
}

}  // namespace inflight::serving
