// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/bls_members.h"

#include <string>

#include "base/status_macros.h"
#include "serving/repository/candidate.h"

namespace inflight::serving {
namespace {

// Begins as what a Python model gets that calls a model which is not there.
Status NotReady(const char* key, const std::string& name) {
  return Unavailable("Failed for execute the inference request. Model '" + name +
                     "' is not ready; load it, or name another by " + key + " of the BLS model");
}

template <typename Kind>
std::shared_ptr<Kind> Named(const ModelTable::Entries& entries, const std::string& name) {
  const auto found = entries.find(name);
  if (found == entries.end()) return nullptr;
  for (auto entry = found->second.rbegin(); entry != found->second.rend(); ++entry) {
    if (entry->model != nullptr) return std::dynamic_pointer_cast<Kind>(entry->model);
  }
  return nullptr;
}

template <typename Kind>
std::shared_ptr<Kind> NamedOrOnly(const HeldTable& table, const std::string& name,
                                  const std::string& llm) {
  if (auto named = Named<Kind>(table->entries(), name)) return named;
  std::shared_ptr<Kind> only;
  for (const auto& model : table->models()) {
    auto found = std::dynamic_pointer_cast<Kind>(model);
    if (found == nullptr) continue;
    const std::string_view partner = table->PartnerOf(found->name());
    if (!partner.empty() && partner != llm) continue;
    if (only != nullptr && only->name() != found->name()) return nullptr;
    only = std::move(found);  // of several versions the latest
  }
  return only;
}

}  // namespace

Result<PipelineMembers> BlsMembers::Find() const {
  const HeldTable table = published_->Get();
  if (!table) return Unavailable("the server is shutting down");
  PipelineMembers members = {
      .preprocessing = NamedOrOnly<PreprocessingModel>(table, names_.preprocessing, names_.llm),
      .llm = Named<LlmModel>(table->entries(), names_.llm),
      .postprocessing = NamedOrOnly<PostprocessingModel>(table, names_.postprocessing, names_.llm)};
  if (!names_.draft_llm.empty()) {
    members.draft = Named<LlmModel>(table->entries(), names_.draft_llm);
    if (!members.draft)
      members.draft_status = NotReady("tensorrt_llm_draft_model_name", names_.draft_llm);
  }
  if (!members.preprocessing) return NotReady("preprocessing_model_name", names_.preprocessing);
  if (!members.llm) return NotReady("tensorrt_llm_model_name", names_.llm);
  if (!members.postprocessing) return NotReady("postprocessing_model_name", names_.postprocessing);
  members.matches_stop_texts = MatchesStopTexts(*members.llm);
  return members;
}

// As StopWordMatch says.
bool BlsMembers::MatchesStopTexts(const LlmModel& llm) const {
  if (stop_words_ != StopWordMatch::kByRelease) return stop_words_ == StopWordMatch::kText;
  constexpr int kFirstTextRelease = 19;
  return llm.iteration_profile().release >= kFirstTextRelease || !IsUpstreams(llm.config());
}

}  // namespace inflight::serving
