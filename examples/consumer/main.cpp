#include <iostream>
#include <moelane/dtype.hpp>

int main() { std::cout << moelane::name_of(moelane::DType::bf16) << '\n'; }
