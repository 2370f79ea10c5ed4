/* The fast path as it is shipped, with a call before each access to the memory that processes of a host share. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *hook = NULL;

static void
host_step(const char *name)
{
    PyObject *done = hook != NULL ? PyObject_CallFunction(hook, "s", name) : NULL;
    if (done == NULL)
        PyErr_Clear();
    Py_XDECREF(done);
}

#define HOST_STEP(name) host_step(name)
#include FAST_PATH

/* Call function(name) at each step from now on. */
void
set_hook(PyObject *function)
{
    Py_XSETREF(hook, Py_NewRef(function));
}
