// SPDX-License-Identifier: Apache-2.0
// inflight pull: a model of the hub of Hugging Face, into its cache on this machine.
#include "hub/pull.h"

#include <cstdio>
#include <mutex>

#include "artifact/hub_cache.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "command_line.h"
#include "commands.h"
#include "local_models.h"
#include "progress.h"

namespace inflight::tool {
namespace {

const Usage kPullUsage = {
    "inflight pull ORG/NAME[:QUANT][@REVISION]",
    "Downloads a model from the hub of Hugging Face into its cache ($HF_HUB_CACHE, else "
    "$HF_HOME/hub), where `serve ORG/NAME`\n"
    "and every other command finds it. Of a model of GGUF files QUANT says which: "
    "ORG/NAME:Q4_K_M. What was downloaded before\n"
    "is not downloaded again, and a download that was cut off goes on. HF_ENDPOINT, HF_TOKEN and "
    "HF_HUB_OFFLINE mean what they\n"
    "mean to the hub's own library."};

struct PullOptions {
  int connections = hub::HubOptions().num_connections;
};

config::Schema<PullOptions> MakePullSchema() {
  config::Schema<PullOptions> schema;
  schema.Section("Pull");
  schema.Add(
      "connections", [](PullOptions& o) -> auto& { return o.connections; },
      "Files that are downloaded at once.", config::Range(1, 64));
  return schema;
}

Status RunPull(const PullOptions& options, std::span<const std::string> positionals) {
  ASSIGN_OR_RETURN(const std::string text, OnlyPositional(kPullUsage, positionals, "model's name"));
  const auto id = artifact::ParseHubId(text);
  if (!id) return UsageError(kPullUsage, "'" + text + "' is no name of a model, such as org/name");
  logging::SetLevel(logging::Level::kWarning);
  hub::HubOptions hub_options;
  hub_options.num_connections = options.connections;
  hub::Pulled pulled;
  {
    ProgressBar bar("pull");
    std::mutex mutex;
    hub_options.progress = [&](uint64_t done, uint64_t all) {
      const std::lock_guard lock(mutex);
      bar.Update(static_cast<double>(done) / static_cast<double>(all),
                 SizeText(done) + " of " + SizeText(all));
    };
    ASSIGN_OR_RETURN(pulled, hub::Pull(*id, hub_options));
  }
  std::printf("%s\n%zu files, %s, %s of them downloaded\n", pulled.path.c_str(), pulled.num_files,
              SizeText(pulled.bytes).c_str(), SizeText(pulled.downloaded_bytes).c_str());
  return Status::Ok();
}

}  // namespace

int PullMain(Args args) { return RunCommand(args, kPullUsage, MakePullSchema(), RunPull); }

Manual PullManual() { return {kPullUsage, MakePullSchema().options()}; }

}  // namespace inflight::tool
