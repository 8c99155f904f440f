// SPDX-License-Identifier: Apache-2.0
// Loads models: from model repositories as upstream lays them out, or one directory under the four
// models' names; at start, or one by one while the server runs. What cannot be loaded becomes an
// index entry with its reason.
//
//   <repository>/<model>/config.pbtxt, <repository>/<model>/<version>/...
//
// Threads: table() and Index() from any thread at any time; the calls that load and unload publish
// a new table when they are done. Those of models that have nothing to do with each other run side
// by side (ServerOptions::model_load_threads), others one after another.
// Errors: texts as clients compare them (docs/reference/protocol/http.md, "load, unload").
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/worker_pool.h"
#include "contract/key_report.h"
#include "object_store/mirror.h"
#include "serving/repository/model_claims.h"
#include "serving/repository/model_control.h"
#include "serving/repository/model_places.h"
#include "serving/repository/model_table.h"
#include "serving/repository/retirement.h"
#include "serving/repository/server_options.h"
#include "serving/repository/version_loader.h"

namespace inflight::serving {

// What became of the keys of one config.pbtxt.
struct ModelReport {
  std::string model;
  std::string version;
  contract::KeyReport keys;
};

class Repository {
 public:
  // `name_space`: of all its models, where repositories are namespaces.
  Repository(ServerOptions options, EngineLoader load, std::shared_ptr<WorkerPool> text_pool,
             std::string name_space = {});
  ~Repository();

  // --- at start ---
  // A place of models, for Load, LoadRepository and Rescan. A name that two of them have is in the
  // way of both: all are added before any is loaded.
  void AddRepository(const std::filesystem::path& dir);
  void LoadRepository(const std::filesystem::path& dir);  // adds it, unless that is done
  // Of an address in an object store: the folder that LoadRepository takes, filled where
  // `with_files`, else with the names of models alone, whose files come when they are loaded. None
  // where the store could not be listed, which stands in entries().
  std::optional<std::filesystem::path> AddRemote(const std::string& address, bool with_files);
  bool HasRemote(const std::string& address) const;
  void FetchNames();  // of models that the stores have got meanwhile
  void LoadModelDir(const std::filesystem::path& dir);  // generated configurations

  // --- while the server runs (repository_control.cc) ---
  // kInternal when the model cannot be found or its configuration cannot be used, kInvalidArgument
  // when a version does not start, kResourceExhausted when memory for it is missing. A model that
  // runs already goes on until its successor is ready, and for ever when that fails. Without an
  // override nothing happens while its files are as old as what runs; where nothing but instance
  // groups has changed what runs takes them on.
  Status Load(const std::string& name, const LoadOverride& override);
  // Requests that run end as they would; new ones find no such model. What uses the model goes with
  // it. `with_steps`: also the models that the ensemble's steps name and that no other model uses.
  void Unload(const std::string& name, bool with_steps);
  // Loads what is new or changed, unloads what has gone. What failed is tried again when a file of
  // some model has changed, since it may be a model that it needs. One thread calls it.
  void Rescan();
  std::vector<IndexEntry> Index(bool ready_only) const;

  // Repositories that come and go (repository_added.cc), as Server has them.
  Status AddRepository(const AddedRepository& added);
  void RemoveRepository(const std::filesystem::path& root);

  HeldTable table() const { return published_->Get(); }
  // From any thread, also while a model is loaded.
  bool Knows(const std::string& name) const;
  bool HasRoot(const std::filesystem::path& root) const { return places().HasRoot(root); }
  const std::vector<ModelEntry>& entries() const { return entries_; }
  // Of files, in load order; of each version that of its newest load.
  const std::vector<ModelReport>& reports() const { return reports_; }

 private:
  // What the copy of a model that runs was loaded from.
  struct Source {
    std::filesystem::path dir;
    ParsedModelConfig parsed;
    FileTime changed;
    FileTimes data_files;
    // Kept where the copy uses other models, with which it is loaded again.
    std::shared_ptr<const OverrideDir> files;
  };
  // The loads that one call makes.
  struct Loading {
    std::set<std::string> in_progress;  // the models that led to the one being loaded, and itself
    std::set<std::string> failed;       // nobody tries them twice
  };

  // `name` is the directory's own, unless it was added by another.
  Result<Candidate> Poll(const std::string& name, const std::filesystem::path& dir,
                         const LoadOverride& override) const;
  // Of the parameters of the model's own configuration.
  std::set<std::string> ValuesInFile(const std::string& name) const;
  bool IsModel(const std::filesystem::path& dir) const { return places_.IsModel(dir); }
  static std::vector<Candidate*> InStepOrder(std::vector<Candidate>& candidates, ModelKind kind);
  void LoadCandidates(std::vector<Candidate> candidates);
  Status FindSteps(const Candidate& ensemble) const;
  Status CheckNoCycle(const ::inference::ModelConfig& ensemble) const;
  void LoadSideBySide(const std::vector<Candidate*>& candidates);
  std::vector<ModelEntry> LoadVersions(Candidate& candidate);
  void Remember(const Candidate& candidate);
  void Add(ModelEntry entry);
  void AddAmbiguous(const std::string& name);
  static constexpr char kAmbiguous[] = "model appears in two or more repositories";

  // --- from object stores (repository_remote.cc) ---
  // The files of a model that is to be loaded, and of what it uses and is not loaded; `fetched` are
  // those that came before in the same load. Gives control_mutex_ up meanwhile.
  Status FetchFiles(const std::string& name, const std::set<std::string>& connected,
                    std::set<std::string>& fetched);
  void FetchAll();

  // --- other instance groups, nothing else (repository_instances.cc) ---
  bool ChangesOnlyInstances(const Candidate& candidate) const;
  // Of all versions or none.
  Status ChangeInstances(const Candidate& candidate);

  // --- one by one (repository_control.cc) ---
  Status LoadClaimed(const std::string& name, const LoadOverride& override);
  Status LoadOne(const std::string& name, const LoadOverride& override, Loading& loading);
  Status TryLoad(const std::string& name, const LoadOverride& override, Loading& loading);
  Status LoadCopy(const Candidate& candidate, Loading& loading);
  Status LoadSteps(const Candidate& candidate, Loading& loading);
  Status Install(const std::string& name, std::vector<ModelEntry> entries);
  void ReloadUsersOf(const std::string& name, Loading& loading);
  void UnloadOne(const std::string& name);
  void AddUsersOf(const std::string& name, std::set<std::string>& seen,
                  std::vector<std::string>& users) const;
  std::vector<std::string> LoadedUsersOf(const std::string& name) const;
  // The model and all that its load or unload may touch: what it uses, by its file and as it runs,
  // what uses it, and so on.
  std::set<std::string> ConnectedWith(const std::string& name, const LoadOverride& override) const;
  std::vector<std::string> MembersInFile(const std::string& name,
                                         const LoadOverride& override) const;
  // The version asked for, or the latest loaded.
  std::shared_ptr<Model> Find(const std::string& name, int64_t version = -1) const;
  bool IsLoaded(const std::string& name) const;
  bool IsKnown(const std::string& name) const;
  ModelPlaces places() const {
    const std::lock_guard lock(places_mutex_);
    return places_;
  }
  void Guard(ModelEntry& entry);
  void Publish();

  const ServerOptions options_;
  const std::string name_space_;
  const std::shared_ptr<PublishedTable> published_ = std::make_shared<PublishedTable>();
  // Guards all below but scanned_. Given up while a version is loaded: that its models
  // stay as they are is the business of claims_.
  mutable std::mutex control_mutex_;
  ModelClaims claims_;
  VersionLoader loader_;
  ModelPlaces places_;  // written under places_mutex_ too, once the server runs
  std::vector<std::shared_ptr<object_store::Mirror>> mirrors_;  // set at start
  std::vector<ModelEntry> entries_;
  std::vector<ModelReport> reports_;
  std::map<std::filesystem::path, FileTime> scanned_;  // by directory: the newest at the last scan
  std::map<std::string, Source> sources_;              // by model
  std::map<std::string, std::string> loaded_configs_;  // by model: JSON that came with its load
  mutable std::mutex places_mutex_;
  const std::shared_ptr<Retirement> retirement_ = std::make_shared<Retirement>();
};

}  // namespace inflight::serving
