#include <cstdio>
const char * commit();
const char * where();
int main() {
    std::printf("usage: llama-quantize of %s, %s, %s\n", commit(), where(), __FILE__);
    std::printf("  15  or  Q4_K_M  :  4.58G\n   7  or  Q8_0    :  7.96G\n  32  or  BF16    : 14.00G\n");
    return 1;
}
