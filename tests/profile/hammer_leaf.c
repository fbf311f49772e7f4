/* Calls leaf.c, built with sanitizers, with mutated pages:

       hammer PAGES PAGE_BYTES FIELDS_N ROUNDS SEED

   PAGES is a file of leaf pages. Prints how many of the rounds were read, and how many refused. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t leaf_rows(const uint8_t *pages, int64_t pages_n, int64_t page_bytes, int64_t usable_bytes,
                  int64_t null, int64_t fields_n, const int64_t *columns, int64_t columns_n,
                  int64_t *values, int64_t most_rows);

enum { BEHIND = 10, MOST_PAGES = 3 };

static const uint8_t ODD[] = {0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 13, 126, 127, 128, 129, 255};
static uint64_t state;

static uint64_t below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

int main(int words_n, char **words)
{
    if (words_n != 6)
        return 2;
    int64_t page_bytes = atoll(words[2]), fields_n = atoll(words[3]), rounds = atoll(words[4]);
    state = 88172645463325252u + (uint64_t)atoll(words[5]);
    FILE *file = fopen(words[1], "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return 2;
    int64_t bytes = ftell(file), pages_n = bytes / page_bytes, read_n = 0, refused_n = 0;
    uint8_t *pages = malloc((size_t)bytes);
    rewind(file);
    if (!pages || fread(pages, 1, (size_t)bytes, file) != (size_t)bytes || pages_n <= MOST_PAGES)
        return 2;
    fclose(file);
    for (int64_t round = 0; round < rounds; round++) {
        /* Of exactly the size that is needed, so that one byte more is noticed. */
        int64_t some = 1 + (int64_t)below(MOST_PAGES), from = (int64_t)below(pages_n - some);
        uint8_t *raw = malloc((size_t)(some * page_bytes + BEHIND));
        memcpy(raw, pages + from * page_bytes, (size_t)(some * page_bytes));
        memset(raw + some * page_bytes, (int)below(256), BEHIND);
        for (uint64_t change = below(6); change; change--) {
            uint64_t reach = below(3) ? (uint64_t)(some * page_bytes) : 12;
            raw[below(reach)] = below(2) ? ODD[below(sizeof ODD)] : (uint8_t)below(256);
        }
        int64_t columns[64], columns_n = 0, most_rows = (int64_t)below((uint64_t)(page_bytes * some / 4));
        for (int64_t field = 0; field < fields_n && columns_n < 64; field++)
            if (field != 1 && below(2))
                columns[columns_n++] = field;
        int64_t *wanted = malloc(sizeof *wanted * (size_t)columns_n);
        int64_t *values = malloc(sizeof *values * (size_t)(columns_n * most_rows));
        memcpy(wanted, columns, sizeof *wanted * (size_t)columns_n);
        int64_t usable_bytes = page_bytes - (below(4) ? 0 : (int64_t)below(32));
        int64_t rows_n = leaf_rows(raw, some, page_bytes, usable_bytes, INT64_MIN, fields_n, wanted,
                                   columns_n, values, most_rows);
        if (rows_n > most_rows)
            return 1;
        rows_n < 0 ? refused_n++ : read_n++;
        free(raw), free(wanted), free(values);
    }
    free(pages);
    printf("%lld %lld\n", (long long)read_n, (long long)refused_n);
    return 0;
}
