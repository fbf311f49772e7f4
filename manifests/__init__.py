"""The facts of every recipe, each written once: options, tables read, tables written."""
