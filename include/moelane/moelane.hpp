#pragma once

// Everything: worlds of ranks, configuration, and the engine that dispatches tokens to experts and combines
// answers.
#include "moelane/config.hpp"
#include "moelane/dtype.hpp"
#include "moelane/engine.hpp"
#include "moelane/error.hpp"
#include "moelane/heap.hpp"
#include "moelane/placement.hpp"
#include "moelane/tensor.hpp"
#include "moelane/world.hpp"
