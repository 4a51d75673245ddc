#pragma once

#include <cstdint>
#include <string>

#include "moelane/error.hpp"
#include "moelane/tensor.hpp"

// What can be said of one tensor, whatever it is for. `name` is the argument's, `dims` its shape for people.
// Each refusal is an Error(argument) with one sentence: what it is, its value, what is allowed.
namespace moelane::tensor_checks {

[[noreturn]] void refuse(const std::string& what, const std::string& value, const std::string& allowed);
std::string shape_text(const TensorView& t);
// Given, of the right number of dimensions and dtype.
void basics(const char* name, const TensorView& t, int ndim, const char* dims);
void device(const char* name, const TensorView& t, Device wanted);  // if given
void dtype(const char* name, const TensorView& t, DType wanted);
void aligned_to(const char* name, const TensorView& t);
void extent(const char* name, const TensorView& t, int dim, std::int64_t low, std::int64_t high,
            const char* dims);
// The stride of `dim` in bytes; a dimension of one element has none that matters.
std::int64_t stride(const TensorView& t, int dim);
// As stride(), but 0 for a dimension of one element: nothing of it shows in an address or in what divides it.
std::int64_t outer_stride(const TensorView& t, int dim);
void unit_stride(const char* name, const TensorView& t, int dim);
// No two elements of an output share memory: sorted by stride, each dimension steps over all smaller ones.
void no_overlap(const char* name, const TensorView& t);
void vector(const char* name, const TensorView& t, std::int64_t least, const char* dims);

}  // namespace moelane::tensor_checks
