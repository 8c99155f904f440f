// SPDX-License-Identifier: Apache-2.0
// The options of `inflight serve` for the front end of OpenAI's API, and what it is started with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/schema.h"
#include "protocol/openai/openai_handler.h"
#include "serve_options.h"

namespace inflight::tool {

void AddOpenAiOptions(config::Schema<ServeOptions>& schema);

// The names under which the model of a directory is served: those of --served-model-name, else the
// one that the command line leads to it by: "Qwen/Qwen3-0.6B", or the name of its folder.
std::vector<openai::ModelAlias> ModelAliases(const ServeOptions& options);

// The last line of the start: where to ask, for which model, and how. Nothing without one.
void LogHowToAsk(serving::Server& server, const ServeOptions& options, int http_port,
                 int openai_port);

}  // namespace inflight::tool
