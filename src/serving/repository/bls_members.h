// SPDX-License-Identifier: Apache-2.0
// Finds the members of a BLS among the models that are loaded at that moment, as upstream's script
// does: they may be loaded after it, go, and come back as other copies.
//
// Threads: Find from any thread.
#pragma once

#include <memory>

#include "contract/text_parameters.h"
#include "serving/pipelines/pipeline_routes.h"
#include "serving/repository/model_table.h"
#include "serving/repository/server_options.h"

namespace inflight::serving {

class BlsMembers {
 public:
  // `published` holds the BLS itself, so that the repository empties it at its end.
  BlsMembers(contract::BlsParameters names, StopWordMatch stop_words,
             std::shared_ptr<const PublishedTable> published)
      : names_(std::move(names)), stop_words_(stop_words), published_(std::move(published)) {}

  // Where no text model has the name, the only one of its kind that belongs to the LLM takes its
  // place. kUnavailable names the member that is missing, and its key.
  Result<PipelineMembers> Find() const;

 private:
  bool MatchesStopTexts(const LlmModel& llm) const;

  const contract::BlsParameters names_;
  const StopWordMatch stop_words_;
  const std::shared_ptr<const PublishedTable> published_;
};

}  // namespace inflight::serving
