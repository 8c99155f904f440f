// SPDX-License-Identifier: Apache-2.0
// The models of a server: of one Repository, or with --model-namespacing of one for each model
// repository, which then is a namespace: its models may have names that others have, and its
// ensembles consist of its own models.
//
// A name that several namespaces have leads to none of their models; they run as steps.
//
// Threads: as Repository. What a load or unload changes is in table() when the call returns.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "serving/repository/repository.h"

namespace inflight::serving {

class Repositories {
 public:
  Repositories(const ServerOptions& options, EngineLoader load,
               std::shared_ptr<WorkerPool> text_pool);

  // What the options name; an error where that ends the start.
  Status LoadAtStart();
  // False: a repository was not there at the start, which was not to end it. There are no models.
  bool usable() const { return is_usable_; }

  HeldTable table() const;
  std::vector<IndexEntry> Index(bool ready_only) const;

  // As those of Repository; a name of several namespaces is an error.
  Status Load(const std::string& name, const LoadOverride& override);
  Status Unload(const std::string& name, bool with_steps);
  void Rescan();
  Status AddRepository(const AddedRepository& added);
  void RemoveRepository(const std::string& root);
  // Transfers from object stores are given up, and none begins.
  void BeginExit() { *is_exiting_ = true; }

 private:
  using Member = std::shared_ptr<Repository>;

  // `options` with transfers that end when the server does.
  static ServerOptions WithExit(ServerOptions options,
                                const std::shared_ptr<std::atomic<bool>>& is_exiting);
  Member AddNameSpace(const std::string& root);
  std::vector<Member> members() const;
  // Those that have a model of this name.
  std::vector<Member> Holding(const std::string& name) const;
  std::vector<Member> Rooted(const std::filesystem::path& root) const;
  std::vector<ModelEntry> entries() const;
  void Publish();
  Status CheckDirectories() const;
  Status LoadNamed();
  void LogModels() const;
  Status CheckAllLoaded() const;

  const std::shared_ptr<std::atomic<bool>> is_exiting_ = std::make_shared<std::atomic<bool>>(false);
  const ServerOptions options_;
  const EngineLoader load_;
  const std::shared_ptr<WorkerPool> text_pool_;
  const Member first_;           // has what is of no repository
  mutable std::mutex mutex_;     // of the two below
  std::vector<Member> members_;  // first_, then namespaces
  HeldTable table_;              // of all; of none without namespaces
  bool is_usable_ = true;        // constant after the start
  std::mutex adding_;            // repositories come and go one after the other
  std::mutex publishing_;        // tables are made one after the other
};

}  // namespace inflight::serving
