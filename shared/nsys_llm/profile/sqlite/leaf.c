/* Integer columns out of the leaf pages of an SQLite table, in one pass over the rows.

   Every place is checked against the bounds of its page and every length against the next before
   anything is read there; what is not as simple as traces are is refused. Called by native.py through
   ctypes, so this knows nothing of Python. The format: https://www.sqlite.org/fileformat2.html,
   sections 1.6 (pages and cells) and 2.1 (records). */

#include <stdint.h>
#include <string.h>

/* To be raised with every change of what native.py calls. */
#define ABI 1
/* Instead of a number of rows or bytes: something is not simple. */
#define UNEXPECTED (-1)

enum {
    TABLE_LEAF = 13,
    LEAF_HEADER_BYTES = 8,
    /* Of a row id; the last one has 8 bits. */
    LONGEST_VARINT = 9,
    /* The longest header whose length is one byte; a field takes at least one. */
    MOST_HEADER_BYTES = 127,
    FLOAT = 7,
    FIRST_TEXT_OR_BLOB = 12,
    /* Stands for all types that are no integer. */
    NO_INTEGER = 255,
    /* A power of 2; traces have some dozens of headers. */
    LAYOUTS_N = 256,
};

/* By serial type. Types 0 (NULL), 8 and 9 (the numbers 0 and 1) take no room, 10 and 11 are none. */
static const uint8_t WIDTHS[FIRST_TEXT_OR_BLOB] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0};
static const uint8_t SHIFTS[10] = {0, 56, 48, 40, 32, 16, 0, 0, 0, 0};
static const int64_t KEPT[10] = {0, -1, -1, -1, -1, -1, -1, 0, 0, 0};
/* Of NULL, whose number a caller chooses, the first. */
static const int64_t CONSTANTS[10] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 1};

/* Which columns to read, by position, of how many. */
struct wanted {
    int64_t fields_n;
    const int64_t *columns;
    int64_t columns_n;
};

/* What a record header says: bytes of the body, and where in it the wanted columns begin. */
struct layout {
    /* Empty where its first byte, which is its length, is 0. */
    uint8_t header[MOST_HEADER_BYTES];
    uint8_t types[MOST_HEADER_BYTES];
    uint16_t offsets[MOST_HEADER_BYTES];
    int64_t body_bytes;
};

int64_t leaf_abi(void) { return ABI; }

static uint64_t word_at(const uint8_t *at)
{
    uint64_t word = 0;
    for (int byte = 0; byte < 8; byte++)
        word = word << 8 | at[byte];
    return word;
}

/* Find out what a header says. Return whether it is simple. */
static int lay_out(const uint8_t *header, const struct wanted *wanted, struct layout *layout)
{
    const uint8_t *at = header + 1, *end = header + header[0];
    uint8_t types[MOST_HEADER_BYTES];
    uint16_t offsets[MOST_HEADER_BYTES];
    uint64_t offset = 0;
    for (int64_t field = 0; field < wanted->fields_n; field++) {
        if (at >= end)
            return 0;
        uint64_t type = *at & 127;
        while (*at++ > 127) {
            /* A longer text is on no page. */
            if (at >= end || type >> 32)
                return 0;
            type = type << 7 | (*at & 127);
        }
        if (type == 10 || type == 11)
            return 0;
        types[field] = type < FIRST_TEXT_OR_BLOB && type != FLOAT ? (uint8_t)type : NO_INTEGER;
        offsets[field] = (uint16_t)offset;
        offset += type < FIRST_TEXT_OR_BLOB ? WIDTHS[type] : (type - FIRST_TEXT_OR_BLOB) / 2;
        if (offset > UINT16_MAX)
            return 0;
    }
    for (int64_t column = 0; column < wanted->columns_n; column++) {
        layout->types[column] = types[wanted->columns[column]];
        layout->offsets[column] = offsets[wanted->columns[column]];
        if (layout->types[column] == NO_INTEGER)
            return 0;
    }
    layout->body_bytes = (int64_t)offset;
    return at == end;
}

/* Return what a header of `header[0]` bytes says, found out once; NULL of one that is not simple. */
static const struct layout *layout_of(const uint8_t *header, const struct wanted *wanted,
                                      struct layout *layouts)
{
    int bytes = header[0];
    uint64_t digest = 0;
    for (int first = 0; first < bytes; first += 8) {
        uint64_t word = word_at(header + first);
        if (bytes - first < 8)
            /* What follows a header belongs to the values. */
            word >>= 64 - 8 * (bytes - first);
        /* Odd, with bits all over (2^64 over the golden ratio). */
        digest = (digest ^ word) * 0x9E3779B97F4A7C15u;
        digest ^= digest >> 29;
    }
    struct layout *layout = &layouts[digest & (LAYOUTS_N - 1)];
    if (memcmp(layout->header, header, (size_t)bytes) != 0) {
        layout->header[0] = 0;
        if (!lay_out(header, wanted, layout))
            return NULL;
        memcpy(layout->header, header, (size_t)bytes);
    }
    return layout;
}

/* Return where the record of a cell begins, and its length; NULL if it does not end on its page. */
static const uint8_t *record_of(const uint8_t *at, const uint8_t *end, int64_t usable_bytes,
                                int64_t *length)
{
    *length = *at++;
    if (*length > 127) {
        if (*at > 127)
            return NULL;
        *length = (*length & 127) << 7 | *at++;
    }
    for (int more = LONGEST_VARINT - 1; *at++ > 127 && more; more--)
        ;
    /* A longer record goes on in pages of its own (section 1.6). */
    return *length <= usable_bytes - 35 && *length <= end - at ? at : NULL;
}

/* Return how many rows some leaf pages have; UNEXPECTED if not all are simple, or too many.

   pages: One after the other, and at least 256 bytes more: at most 18 bytes behind the last page
   are looked at, none of which has a say in the numbers.
   null: What stands for NULL.
   fields_n: How many columns the table has.
   columns: Which to read, by position.
   values: Shape (columns_n, most_rows). */
int64_t leaf_rows(const uint8_t *pages, int64_t pages_n, int64_t page_bytes, int64_t usable_bytes,
                  int64_t null, int64_t fields_n, const int64_t *columns, int64_t columns_n,
                  int64_t *values, int64_t most_rows)
{
    const struct wanted wanted = {fields_n, columns, columns_n};
    struct layout layouts[LAYOUTS_N];
    int64_t constants[10], rows_n = 0;
    if (fields_n >= MOST_HEADER_BYTES || columns_n >= MOST_HEADER_BYTES)
        return UNEXPECTED;
    for (int layout = 0; layout < LAYOUTS_N; layout++)
        layouts[layout].header[0] = 0;
    memcpy(constants, CONSTANTS, sizeof constants);
    constants[0] = null;
    for (const uint8_t *page = pages; page < pages + pages_n * page_bytes; page += page_bytes) {
        int64_t cells_n = page[3] << 8 | page[4];
        int64_t pointers_end = LEAF_HEADER_BYTES + 2 * cells_n;
        if (page[0] != TABLE_LEAF || pointers_end > usable_bytes || cells_n > most_rows - rows_n)
            return UNEXPECTED;
        for (int64_t pointer = LEAF_HEADER_BYTES; pointer < pointers_end; pointer += 2) {
            int64_t cell = page[pointer] << 8 | page[pointer + 1], length;
            if (cell < pointers_end || cell >= usable_bytes)
                return UNEXPECTED;
            const uint8_t *at = record_of(page + cell, page + usable_bytes, usable_bytes, &length);
            if (at == NULL || *at < 1 || *at > MOST_HEADER_BYTES || *at > length)
                return UNEXPECTED;
            const struct layout *layout = layout_of(at, &wanted, layouts);
            if (layout == NULL || *at + layout->body_bytes != length)
                return UNEXPECTED;
            at += *at;
            for (int64_t column = 0; column < columns_n; column++) {
                uint8_t type = layout->types[column];
                int64_t value = (int64_t)word_at(at + layout->offsets[column]) >> SHIFTS[type];
                values[column * most_rows + rows_n] = (value & KEPT[type]) | constants[type];
            }
            rows_n++;
        }
    }
    return rows_n;
}
