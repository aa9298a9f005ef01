/* SPDX-License-Identifier: Apache-2.0 */
#include "base/list.h"
#include "test.h"

struct item {
    int number;
    struct sp_list link;
};

static void assert_numbers(const struct sp_list *head, const char *want)
{
    char forward[16] = "";
    size_t n = 0;

    sp_list_each(i, head)
        forward[n++] = (char)('0' + SP_CONTAINER(i, struct item, link)->number);
    assert_string_equal(forward, want);
    for (struct sp_list *i = head->prev; i != head; i = i->prev)
        assert_int_equal(SP_CONTAINER(i, struct item, link)->number, want[--n] - '0');
    assert_int_equal(n, 0);
}

static void test_an_empty_list(void **state)
{
    struct sp_list constant = SP_LIST_EMPTY(constant);
    struct sp_list head;

    (void)state;
    sp_list_init(&head);
    assert_true(sp_list_is_empty(&head));
    assert_true(sp_list_is_empty(&constant));
    assert_true(sp_list_is_empty(&(struct sp_list){0}));
    assert_null(sp_list_first(&head));
    assert_null(sp_list_last(&head));
    assert_null(sp_list_take_first(&head));
    assert_numbers(&head, "");
}

static void test_items_are_in_the_order_they_were_added(void **state)
{
    struct item items[] = {{.number = 1}, {.number = 2}, {.number = 3}, {.number = 4}};
    struct sp_list head = SP_LIST_EMPTY(head);

    (void)state;
    sp_list_append(&head, &items[1].link);
    sp_list_append(&head, &items[3].link);
    sp_list_prepend(&head, &items[0].link);
    sp_list_insert_before(&items[3].link, &items[2].link);
    assert_numbers(&head, "1234");
    assert_ptr_equal(sp_list_first(&head), &items[0].link);
    assert_ptr_equal(sp_list_last(&head), &items[3].link);
    assert_ptr_equal(sp_list_take_first(&head), &items[0].link);
    assert_numbers(&head, "234");
}

static void test_removing_twice_is_harmless(void **state)
{
    struct item items[] = {{.number = 1}, {.number = 2}};
    struct sp_list head = SP_LIST_EMPTY(head);

    (void)state;
    assert_false(sp_list_is_linked(&items[0].link));
    sp_list_remove(&items[0].link);
    sp_list_append(&head, &items[0].link);
    sp_list_append(&head, &items[1].link);
    assert_true(sp_list_is_linked(&items[0].link));
    sp_list_remove(&items[0].link);
    sp_list_remove(&items[0].link);
    assert_false(sp_list_is_linked(&items[0].link));
    assert_numbers(&head, "2");
    sp_list_prepend(&head, &items[0].link);
    assert_numbers(&head, "12");
}

static void test_the_current_item_may_be_freed(void **state)
{
    struct sp_list head = SP_LIST_EMPTY(head);

    (void)state;
    for (int i = 1; i <= 5; i++) {
        struct item *item = calloc(1, sizeof *item);

        assert_non_null(item);
        item->number = i;
        sp_list_append(&head, &item->link);
    }
    sp_list_each_safe(i, &head) {
        struct item *item = SP_CONTAINER(i, struct item, link);

        if (item->number % 2 != 0) {
            sp_list_remove(i);
            free(item);
        }
    }
    assert_numbers(&head, "24");
    sp_list_each_safe(i, &head)
        free(SP_CONTAINER(i, struct item, link));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_an_empty_list),
    cmocka_unit_test(test_items_are_in_the_order_they_were_added),
    cmocka_unit_test(test_removing_twice_is_harmless),
    cmocka_unit_test(test_the_current_item_may_be_freed),
};

TEST_MAIN(tests)
