/*
 * realloc_grow: vectors and strings that grow by realloc from 16 bytes to some MiB, several at once.
 *
 * Source: own, after the growth policies of common libraries: vectors double their capacity, strings take an eighth
 * more than they need. A thread appends to random ones of its buffers, so that no buffer can count on free room behind
 * it; a buffer that has reached its length is verified, freed and begun anew.
 *
 * Work: the buffers (at least one a thread) and the appends are totals, divided among the threads. An operation is a
 * realloc, or the malloc and free of a buffer. Live peak: the sum of the threads' own peaks of requested capacity, a
 * bound.
 */
#include "workload.h"

enum { FIRST_CAPACITY = 16, LOW_POWER = 9 };

struct buffer {
    unsigned char *bytes; /* NULL until begun */
    size_t used, capacity, goal;
    bool is_vector;
    unsigned char content; /* every used byte */
};

static struct buffer *buffers;
static size_t buffer_count, appends;
static int high_power;

static void begin_buffer(struct worker *self, struct buffer *buffer)
{
    buffer->goal = random_size(&self->random, LOW_POWER, high_power);
    buffer->is_vector = random_below(&self->random, 2) == 0;
    buffer->content = (unsigned char)random_below(&self->random, 256);
    buffer->capacity = FIRST_CAPACITY;
    buffer->bytes = allocate(FIRST_CAPACITY);
    buffer->bytes[0] = buffer->content;
    buffer->used = 1;
    count_live(self, FIRST_CAPACITY);
}

static void check_byte(struct worker *self, const struct buffer *buffer, size_t position)
{
    if (buffer->bytes[position] != buffer->content)
        fail_check("byte of a grown buffer", buffer->content, buffer->bytes[position]);
    self->written_sum += buffer->content;
    self->read_sum += buffer->bytes[position];
}

static void grow(struct worker *self, struct buffer *buffer, size_t needed)
{
    size_t capacity = needed + needed / 8;
    if (buffer->is_vector)
        for (capacity = buffer->capacity; capacity < needed; capacity *= 2)
            ;
    buffer->bytes = opaque(realloc(buffer->bytes, capacity));
    if (buffer->bytes == NULL)
        fail_memory(capacity);
    count_live(self, (int64_t)capacity - (int64_t)buffer->capacity);
    buffer->capacity = capacity;
    self->operations++;
    check_byte(self, buffer, 0);
    check_byte(self, buffer, buffer->used / 2);
    check_byte(self, buffer, buffer->used - 1);
}

static void append(struct worker *self, struct buffer *buffer)
{
    size_t length = 8 + random_below(&self->random, buffer->used / 4 + 32);
    if (buffer->used + length > buffer->capacity)
        grow(self, buffer, buffer->used + length);
    memset(buffer->bytes + buffer->used, buffer->content, length);
    buffer->used += length;
}

static void end_buffer(struct worker *self, struct buffer *buffer)
{
    for (size_t position = 0; position < buffer->used; position += 512)
        check_byte(self, buffer, position);
    free(buffer->bytes);
    count_live(self, -(int64_t)buffer->capacity);
    buffer->bytes = NULL;
    self->operations++;
}

static void body(struct worker *self)
{
    struct buffer *own = buffers + part_begin(buffer_count, self->index);
    size_t own_count = part_of(buffer_count, self), own_appends = part_of(appends, self);
    for (size_t i = 0; i < own_appends; i++) {
        struct buffer *buffer = &own[random_below(&self->random, own_count)];
        if (buffer->bytes == NULL)
            begin_buffer(self, buffer);
        append(self, buffer);
        if (buffer->used >= buffer->goal)
            end_buffer(self, buffer);
    }
    for (size_t i = 0; i < own_count; i++)
        if (own[i].bytes != NULL)
            end_buffer(self, &own[i]);
}

int main(int argc, char **argv)
{
    begin("realloc_grow", argc, argv);
    buffer_count = pick(64, 256);
    if (buffer_count < (size_t)run.threads)
        buffer_count = (size_t)run.threads;
    appends = pick(1800000, 1800000);
    high_power = (int)pick(20, 22);
    buffers = map_array(buffer_count, sizeof *buffers);
    run_threads(body);
    return finish(sum_of_peaks());
}
