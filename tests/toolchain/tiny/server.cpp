#include <cstdio>
const char * commit();
int main() {
    std::printf("version: 0 (%s)\n--spec-type none,draft-simple,draft-dflash  types\n", commit());
    std::printf("-n, --spec-draft-n-max N  number of tokens to draft\n");
    return 0;
}
