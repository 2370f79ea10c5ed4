/* What the fast path in C, _fastpath.c, is built on: a word that says which numbers are used
 * up, and how the numbers that were taken are handed out.
 *
 * Under the GIL no other code runs between two lines. On free-threaded builds the word is replaced by compare-exchange,
 * if it is still the one that was read; all else changes in a critical section, while the word is SEALED.
 */

#ifndef SNOWREDIS_WORD_H
#define SNOWREDIS_WORD_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <string.h>

#ifdef Py_GIL_DISABLED
#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
/* a field of a range: it may be changing, and then the word has changed before */
#define FIELD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#define SET_FIELD(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELAXED)
#else
#ifndef Py_BEGIN_CRITICAL_SECTION
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif
#define LOAD(place) (place)
#define STORE(place, value) ((place) = (value))
#define FIELD(place) (place)
#define SET_FIELD(place, value) ((place) = (value))
#endif

/* the word, where nothing is left to take */
#define SEALED (-1LL)

/* what alive points to where there is nothing that could be alive */
static const unsigned char NO = 0;

/* Replace the word if it is still last. Return whether it was. */
static inline int
exchange(long long *word, long long last, long long next)
{
#ifdef Py_GIL_DISABLED
    /* the fields were read before */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_compare_exchange_n(word, &last, next, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
#else
    if (*word != last)
        return 0;
    *word = next;
    return 1;
#endif
}

/* Return a list of count numbers, step apart, modulo 2**64. */
static PyObject *
as_list(unsigned long long first, unsigned long long step, Py_ssize_t count)
{
    PyObject *list = PyList_New(count);
    Py_ssize_t i;
    for (i = 0; list != NULL && i < count; i++) {
        PyObject *number = PyLong_FromLongLong((long long)(first + (unsigned long long)i * step));
        if (number == NULL || PyList_SetItem(list, i, number) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* Write count numbers, step apart, modulo 2**64, to an array of int64 at any address. */
static void
write_to(char *place, unsigned long long first, unsigned long long step, Py_ssize_t count)
{
    Py_ssize_t i;
    for (i = 0; i < count; i++, first += step)
        memcpy(place + i * 8, &first, 8);
}

/* Slots of a module that an interpreter with a GIL of its own may import, from 3.12 on. Built for the ABI of 3.11, whose
   headers do not have these names. */
#define OWN_GIL_SLOT {3, (void *)2}
#ifdef Py_GIL_DISABLED
#define MODULE_SLOTS(exec) {OWN_GIL_SLOT, {Py_mod_gil, Py_MOD_GIL_NOT_USED}, {Py_mod_exec, exec}, {0, NULL}}
#else
#define MODULE_SLOTS(exec) {OWN_GIL_SLOT, {Py_mod_exec, exec}, {0, NULL}}
#endif

/* Return the module, without the first of its slots where Python does not know it. */
static PyObject *
init_module(struct PyModuleDef *def, PyModuleDef_Slot *slots)
{
    def->m_slots = Py_Version < 0x030C0000 ? slots + 1 : slots;
    return PyModuleDef_Init(def);
}

#endif
