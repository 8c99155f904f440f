// SPDX-License-Identifier: Apache-2.0
// The local copy of a model repository in a store: a folder for each folder of the address, filled
// when it is asked for. A folder is exchanged as a whole, once all its files are there and right;
// when that fails it stays as it was. It goes with the object.
//
// Files that did not change keep their times, folders have new ones: who looks at times sees what
// changed.
//
// Threads: any; of one folder, and of all, one call at a time.
// Errors:  as Store and Download.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "object_store/cache.h"
#include "object_store/local_tree.h"
#include "object_store/options.h"
#include "object_store/store.h"

namespace inflight::object_store {

class Mirror {
 public:
  // Of the address `text`. Asks nothing of the store yet: the folder is empty.
  static Result<std::shared_ptr<Mirror>> Make(const std::string& text, const Options& options);

  const std::string& address() const { return store_->address().text; }
  const std::filesystem::path& dir() const { return dir_; }

  // Makes the folders that the store has, and removes those that it has not; files come later.
  Status FetchNames();
  // The folder as the store has it; none where it has none.
  Status Fetch(const std::string& name);
  // All folders. An error is that of the listing; those of single folders stand beside their names.
  Result<std::map<std::string, Status>> FetchAll();

 private:
  Mirror(std::shared_ptr<Store> store, std::shared_ptr<Cache> cache, std::unique_ptr<WorkTree> tree)
      : store_(std::move(store)),
        cache_(std::move(cache)),
        tree_(std::move(tree)),
        dir_(tree_->path() / "repository") {}

  Result<std::map<std::string, Status>> ListAndTake();
  Status ListAndTake(const std::string& name);
  Status Take(const std::string& name, const LocalTree& tree);
  Status Exchange(const std::string& name, const std::filesystem::path& made);
  void RemoveAllBut(const std::set<std::string>& names);
  Status Refused(const Status& status) const;
  std::string IdOf(const std::string& name);

  const std::shared_ptr<Store> store_;
  const std::shared_ptr<Cache> cache_;
  const std::unique_ptr<WorkTree> tree_;
  const std::filesystem::path dir_;
  std::mutex mutex_;
  std::map<std::string, std::string> ids_;  // of the trees that are there, by folder
};

}  // namespace inflight::object_store
