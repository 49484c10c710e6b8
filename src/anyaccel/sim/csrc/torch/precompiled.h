#pragma once
// What most files of this folder include from outside. build.py compiles it once and feeds it to each of them, which halves the time;
// every file still includes what it uses. Nothing of our own belongs here: it would have to be compiled again at each change.
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>
