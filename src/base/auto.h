/* SPDX-License-Identifier: Apache-2.0 */
/*
 * auto: cleanup by scope. A variable is declared with its cleanup; TAKE_FD and TAKE_PTR pass the
 * value on and leave nothing to clean up.
 */
#ifndef SP_BASE_AUTO_H
#define SP_BASE_AUTO_H

#include <stdlib.h>
#include <unistd.h>

static inline void sp_auto_free(void *p)
{
    free(*(void **)p);
}

/* Not retried on EINTR: Linux has freed the number already, and another thread may have it. */
static inline void sp_auto_close(const int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

#define auto_free  __attribute__((cleanup(sp_auto_free)))
#define auto_close __attribute__((cleanup(sp_auto_close)))

#define TAKE_FD(fd)              \
    __extension__({              \
        const int taken_ = (fd); \
        (fd) = -1;               \
        taken_;                  \
    })

#define TAKE_PTR(p)                 \
    __extension__({                 \
        __typeof__(p) taken_ = (p); \
        (p) = NULL;                 \
        taken_;                     \
    })

#define TAKE_STRUCT(s)              \
    __extension__({                 \
        __typeof__(s) taken_ = (s); \
        (s) = (__typeof__(s)){0};   \
        taken_;                     \
    })

/* The struct that contains `member`, from a pointer to the member. */
#define SP_CONTAINER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
