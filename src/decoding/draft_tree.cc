// SPDX-License-Identifier: Apache-2.0
#include "decoding/draft_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "base/check.h"
#include "base/status_macros.h"

namespace inflight::decoding {
namespace {

using Path = DraftTree::Path;

// Guesses: that the best choice of a depth is right where those before it are, and how much less
// likely the next one is.
constexpr double kBestIsRight = 0.6;
constexpr double kNextIsRight = 0.5;

const std::vector<Path>& DefaultPaths() {
  // clang-format off
  static const std::vector<Path> paths = {
      {0}, {0, 0}, {1}, {0, 1}, {2}, {0, 0, 0}, {1, 0}, {0, 2}, {3}, {0, 3}, {4}, {0, 4}, {2, 0}, {0, 5}, {0, 0, 1}, {5},
      {0, 6}, {6}, {0, 7}, {0, 1, 0}, {1, 1}, {7}, {0, 8}, {0, 0, 2}, {3, 0}, {0, 9}, {8}, {9}, {1, 0, 0}, {0, 2, 0},
      {1, 2}, {0, 0, 3}, {4, 0}, {2, 1}, {0, 0, 4}, {0, 0, 5}, {0, 0, 0, 0}, {0, 1, 1}, {0, 0, 6}, {0, 3, 0}, {5, 0},
      {1, 3}, {0, 0, 7}, {0, 0, 8}, {0, 0, 9}, {6, 0}, {0, 4, 0}, {1, 4}, {7, 0}, {0, 1, 2}, {2, 0, 0}, {3, 1}, {2, 2},
      {8, 0}, {0, 5, 0}, {1, 5}, {1, 0, 1}, {0, 2, 1}, {9, 0}, {0, 6, 0}, {0, 0, 0, 1}, {1, 6}, {0, 7, 0}};
  // clang-format on
  return paths;
}

std::string Text(const Path& path) { return fmt::format("{{{}}}", fmt::join(path, ", ")); }

Status Refused(const Path& path, const std::string& why) {
  return InvalidArgument("medusa_choices", fmt::format("got {}, {}", Text(path), why));
}

Status CheckPath(const Path& path, int max_depth) {
  if (path.empty()) return Refused(path, "a path has at least one choice; the root is implied");
  if (std::ssize(path) > max_depth)
    return Refused(path, fmt::format("{} choices deep, the model has {} heads; leave longer paths "
                                     "out",
                                     path.size(), max_depth));
  for (const int choice : path)
    if (choice < 0 || choice >= DraftTree::kMaxChoices)
      return Refused(path, fmt::format("a choice must be in [0, {})", DraftTree::kMaxChoices));
  return Status::Ok();
}

}  // namespace

Result<DraftTree> DraftTree::Make(std::span<const Path> paths, int max_depth) {
  if (paths.empty() || std::ssize(paths) > kMaxNodes)
    return InvalidArgument(
        "medusa_choices", fmt::format("got {} paths, must be in [1, {}]", paths.size(), kMaxNodes));
  std::map<Path, int> places;  // in `paths`
  for (size_t i = 0; i < paths.size(); ++i) {
    RETURN_IF_ERROR(CheckPath(paths[i], max_depth));
    if (!places.emplace(paths[i], static_cast<int>(i)).second)
      return Refused(paths[i], "which stands there twice");
  }
  DraftTree tree;
  std::map<Path, int> nodes;
  // A parent that stands behind a child comes with it.
  for (const Path& path : paths) {
    for (size_t length = 1; length <= path.size(); ++length) {
      const Path part(path.begin(), path.begin() + static_cast<ptrdiff_t>(length));
      if (!places.contains(part))
        return Refused(path,
                       fmt::format("which needs {}; list every beginning of a path", Text(part)));
      if (!nodes.emplace(part, tree.size()).second) continue;
      Node node{.depth = static_cast<int>(length), .choice = part.back()};
      double chance = kBestIsRight;
      if (length > 1) {
        node.parent = nodes.at(Path(part.begin(), part.end() - 1));
        node.path_bits = tree[node.parent].path_bits;
        chance *= tree[node.parent].chance;
      }
      node.path_bits |= uint64_t{1} << (63 - tree.size());
      chance *= std::pow(kNextIsRight, node.choice);
      // None is worth more than one before it.
      node.chance = tree.size() == 0 ? chance : std::min(chance, tree.nodes_.back().chance);
      tree.nodes_.push_back(node);
    }
  }
  return tree;
}

DraftTree DraftTree::Default(int max_depth) {
  std::vector<Path> paths;
  for (const Path& path : DefaultPaths())
    if (std::ssize(path) <= max_depth) paths.push_back(path);
  Result<DraftTree> tree = Make(paths, max_depth);
  CHECK(tree.ok());
  return *std::move(tree);
}

DraftTree DraftTree::Likely(int max_depth) {
  // The less likely, and of equally likely ones the later, is the less.
  const auto is_less = [](const Path& a, const Path& b) {
    const auto chance = [](const Path& path) {
      return std::pow(kBestIsRight, std::ssize(path)) *
             std::pow(kNextIsRight, std::accumulate(path.begin(), path.end(), 0));
    };
    const double chance_of_a = chance(a);
    const double chance_of_b = chance(b);
    return chance_of_a != chance_of_b ? chance_of_a < chance_of_b : a > b;
  };
  std::vector<Path> open = {{0}};  // first children and next siblings of those that were taken
  std::vector<Path> paths;
  while (std::ssize(paths) < kMaxNodes) {
    const auto best = std::ranges::max_element(open, is_less);
    paths.push_back(*best);
    open.erase(best);
    open.push_back(paths.back());
    ++open.back().back();
    if (std::ssize(paths.back()) == max_depth) continue;
    open.push_back(paths.back());
    open.back().push_back(0);
  }
  Result<DraftTree> tree = Make(paths, max_depth);
  CHECK(tree.ok());
  return *std::move(tree);
}

int DraftTree::Depth(int num_nodes) const {
  int depth = 0;
  for (int i = 0; i < num_nodes; ++i) depth = std::max(depth, (*this)[i].depth);
  return depth;
}

int DraftTree::NumChoices(int depth, int num_nodes) const {
  int count = 0;
  for (int i = 0; i < num_nodes; ++i)
    if ((*this)[i].depth == depth) count = std::max(count, (*this)[i].choice + 1);
  return count;
}

int DraftTree::Child(int node, TokenId token, std::span<const TokenId> drafts) const {
  for (int i = node + 1; i < std::ssize(drafts); ++i)
    if ((*this)[i].parent == node && drafts[static_cast<size_t>(i)] == token) return i;
  return -1;
}

int64_t DraftTree::Mask(int node, int num_nodes, int num_places) const {
  // Node j stands num_nodes - 1 - j places before the last one, the root num_nodes.
  const uint64_t nodes = (*this)[node].path_bits >> (64 - num_nodes);
  const uint64_t others = ~uint64_t{0} << num_nodes;  // root and text
  const uint64_t places = num_places >= 64 ? ~uint64_t{0} : (uint64_t{1} << num_places) - 1;
  return static_cast<int64_t>((nodes | others) & places);
}

void DraftTree::Cut(int num_nodes) { nodes_.resize(static_cast<size_t>(num_nodes)); }

}  // namespace inflight::decoding
