// SPDX-License-Identifier: Apache-2.0
// Nodes of memory (NUMA) of the machine: where threads of a pool run, and on which nodes' memory
// large buffers lie. A product reads all of its weights once, and each thread another part of them:
// pages that lie on all nodes in turns are read at the speed of all nodes' memory together.
//
// Errors: none. A machine without nodes, or a system that refuses (the usual profiles of containers
// forbid `mbind`), leaves pages on the node whose thread writes them first, as Linux does.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

namespace inflight {

struct NumaNode {
  int id = 0;
  std::vector<int> cores;  // that this process may use, ascending; not empty
};

// The nodes that have cores of `usable_cores`, by id. `root` is "/" outside of tests: below it
// sys/devices/system/node/node<id>/cpulist ("0-3,8-11").
std::vector<NumaNode> NumaNodes(const std::filesystem::path& root,
                                std::span<const int> usable_cores);

// Those of this process, read once. One or none: there is nothing to spread.
// Threads: any.
const std::vector<NumaNode>& UsableNumaNodes();

// Which of `num_nodes` nodes thread `index` of `num_threads` runs on: as many on each as on any
// other, but for one; neighbours share a node.
int NodeOfThread(int index, int num_threads, int num_nodes);

// The calling thread runs on the cores of `node` alone, on any of them.
void RunOn(const NumaNode& node);

// The pages of `num_bytes` of memory at `data`, which begins at a page's start and which nobody has
// written yet, lie on `nodes` in turns.
void Interleave(std::span<const NumaNode> nodes, void* data, size_t num_bytes);

// The same over this process's nodes, where it has several; not where the process was started under
// a policy of its own (`numactl --membind`), which is its user's.
void Interleave(void* data, size_t num_bytes);

}  // namespace inflight
