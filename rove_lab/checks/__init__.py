"""Answers to the book's exercises, checked: one module a chapter, one function an exercise.

A check takes the reader's answer and prints a line: solved and what that showed, or not solved yet
and a hint. It never raises, and compares with a reference of its own on inputs the book does not
show.
"""
