const char * commit() { return COMMIT; }
const char * where() { return __FILE__; }
